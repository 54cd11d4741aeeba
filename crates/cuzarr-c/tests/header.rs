//! The header is what cbindgen writes from the sources, and every function in it has a page.

use std::path::Path;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(crate_folder().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(crate_folder()).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

/// `make header` sets `CUZARR_TEST_WRITE_HEADER`, and the test then writes the header.
#[test]
fn the_header_is_fresh() {
    let (path, text) = (crate_folder().join("include/cuzarr.h"), generated());
    if std::env::var_os("CUZARR_TEST_WRITE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == text, "run `make header`, and commit include/cuzarr.h");
}

#[test]
fn every_function_has_a_page() {
    let text = generated();
    let mut before = "";
    let mut functions = 0;
    for line in text.lines() {
        if !line.starts_with([' ', '/', '#', '}'])
            && line.contains(" cuzarr_") | line.contains("*cuzarr_")
            && line.contains('(')
        {
            assert!(before.starts_with("//"), "no page above: {line}");
            functions += 1;
        }
        before = line;
    }
    assert!(functions > 25, "{functions} functions were found");
}
