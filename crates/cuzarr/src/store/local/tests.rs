use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::*;
use crate::store::{ByteRange, StoreExt, conformance};

fn store() -> (tempfile::TempDir, LocalStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::new(directory.path().join("root")).unwrap();
    (directory, store)
}

#[test]
fn conforms() {
    let directory = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    conformance::run(&|| {
        let root = directory.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(LocalStore::new(root).unwrap())
    });
}

#[test]
fn conforms_with_links_everywhere_and_full_durability() {
    let directory = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    let options =
        LocalOptions { durability: Durability::DataAndName, symlinks: Symlinks::Everywhere, ..LocalOptions::default() };
    conformance::run(&|| {
        let root = directory.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(LocalStore::with_options(root, options).unwrap())
    });
}

#[test]
fn refuses_links_that_lead_outside() {
    let (directory, store) = store();
    store.write("in/value", b"inside").unwrap();
    std::fs::write(directory.path().join("secret"), b"outside").unwrap();
    std::fs::create_dir(directory.path().join("elsewhere")).unwrap();
    std::fs::write(directory.path().join("elsewhere/v"), b"outside").unwrap();
    symlink("../secret", store.root().join("file")).unwrap();
    symlink(directory.path().join("elsewhere"), store.root().join("dir")).unwrap();
    for error in [
        store.get("file").unwrap_err(),
        store.get("dir/v").unwrap_err(),
        store.size_bytes("dir/v").unwrap_err(),
        store.write("dir/new", b"x").unwrap_err(),
        store.write("dir/deeper/new", b"x").unwrap_err(),
        store.write_if_absent("dir/new", b"x").unwrap_err(),
        store.delete("dir/v").unwrap_err(),
        store.delete_prefix("dir/deeper").unwrap_err(),
        store.list("dir").unwrap_err(),
        store.list_dir("dir").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::KeyInvalid, "{error}");
        assert!(error.message().contains("leads outside"), "{error}");
    }
    assert_eq!(store.list("").unwrap(), ["in/value"]);
    assert_eq!(std::fs::read_dir(directory.path().join("elsewhere")).unwrap().count(), 1);
}

#[test]
fn replaces_a_link_instead_of_writing_through_it() {
    let (directory, store) = store();
    store.write("a", b"1").unwrap();
    std::fs::write(directory.path().join("secret"), b"outside").unwrap();
    symlink("../secret", store.root().join("file")).unwrap();
    store.write("file", b"new").unwrap();
    assert_eq!(std::fs::read(directory.path().join("secret")).unwrap(), b"outside");
    assert_eq!(store.get("file").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn follows_links_within_the_root() {
    let (_directory, store) = store();
    store.write("real/v", b"value").unwrap();
    symlink("real", store.root().join("relative")).unwrap();
    symlink(store.root().join("real/v"), store.root().join("absolute")).unwrap();
    symlink("nowhere", store.root().join("dangling")).unwrap();
    symlink("..", store.root().join("real/back")).unwrap();
    assert_eq!(store.get("relative/v").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.get("absolute").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.get("dangling").unwrap(), None);
    assert_eq!(store.list("").unwrap(), ["absolute", "real/v", "relative/v"]);
    store.delete_prefix("relative").unwrap();
    assert_eq!(store.get("real/v").unwrap().as_deref(), Some(&b"value"[..]), "the link goes, its target stays");
}

#[test]
fn follows_links_everywhere_when_told_to() {
    let (directory, store) = store();
    store.write("a", b"1").unwrap();
    std::fs::write(directory.path().join("secret"), b"outside").unwrap();
    symlink("../secret", store.root().join("file")).unwrap();
    let options = LocalOptions { symlinks: Symlinks::Everywhere, ..LocalOptions::default() };
    let store = LocalStore::with_options(store.root(), options).unwrap();
    assert_eq!(store.get("file").unwrap().as_deref(), Some(&b"outside"[..]));
    assert_eq!(store.list("").unwrap(), ["a", "file"]);
}

#[test]
fn the_portable_check_agrees_with_the_kernel() {
    let (directory, store) = store();
    store.write("real/v", b"value").unwrap();
    symlink(directory.path(), store.root().join("out")).unwrap();
    symlink("real", store.root().join("in")).unwrap();
    let resolve = |key| store.root.resolve_for_tests(key);
    assert!(resolve("in/v").unwrap().unwrap().ends_with("real/v"));
    assert!(resolve("in/missing").unwrap().is_none());
    assert!(resolve("real/v/below").unwrap().is_none());
    assert_eq!(resolve("out/root/real/v").unwrap().map(|path| path.ends_with("real/v")), Some(true));
    std::fs::write(directory.path().join("secret"), b"outside").unwrap();
    assert_eq!(resolve("out/secret").unwrap_err().kind(), ErrorKind::KeyInvalid);
}

#[test]
fn hides_unfinished_values() {
    let (_directory, store) = store();
    store.write("c/0", b"old").unwrap();
    std::fs::write(store.root().join("c/.cuzarr-1-2-3.partial"), b"half").unwrap();
    assert_eq!(store.list("").unwrap(), ["c/0"]);
    assert_eq!(store.list_dir("c").unwrap().keys, ["c/0"]);
    let key = "c/.cuzarr-1-2-3.partial";
    assert_eq!(store.get(key).unwrap_err().kind(), ErrorKind::KeyInvalid);
    assert_eq!(store.size_bytes(key).unwrap_err().kind(), ErrorKind::KeyInvalid);
    assert_eq!(store.write(key, b"x").unwrap_err().kind(), ErrorKind::KeyInvalid);
}

#[test]
fn failed_write_leaves_the_old_value_and_no_rest() {
    let (_directory, store) = store();
    store.write("a/v", b"old").unwrap();
    assert!(store.write("a", b"in the way").unwrap_err().message().contains("other keys lie below"));
    assert!(store.write_if_absent("a", b"in the way").is_err());
    assert!(store.write("a/v/below", b"x").unwrap_err().message().contains("is a value"));
    assert!(store.write(&format!("a/{}", "x".repeat(300)), b"x").is_err());
    assert_eq!(store.get("a/v").unwrap().as_deref(), Some(&b"old"[..]));
    let names: Vec<_> = std::fs::read_dir(store.root().join("a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["v"]);
}

#[test]
fn refuses_special_files_without_waiting_for_them() {
    let (_directory, store) = store();
    store.write("v", b"1").unwrap();
    let status = Command::new("mkfifo").arg(store.root().join("pipe")).status().unwrap();
    assert!(status.success());
    assert!(store.get("pipe").unwrap_err().message().contains("neither a file nor a directory"));
    assert_eq!(store.list("").unwrap(), ["v"]);
}

#[test]
fn notices_a_root_that_is_a_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), b"").unwrap();
    assert_eq!(LocalStore::new(directory.path().join("f")).unwrap_err().kind(), ErrorKind::StoreFailed);
}

#[test]
fn read_only_store_creates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let options = LocalOptions { read_only: true, ..LocalOptions::default() };
    let store = LocalStore::with_options(directory.path().join("root"), options).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.write("a", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(!store.root().exists());
}

#[test]
fn reads_on_after_the_root_was_made_anew() {
    let (_directory, store) = store();
    store.write("a", b"1").unwrap();
    std::fs::remove_dir_all(store.root()).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    LocalStore::new(store.root()).unwrap().write("a", b"2").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn notices_a_value_that_shrinks_while_it_is_open() {
    let (_directory, store) = store();
    store.write("v", &[7; 100]).unwrap();
    let object = store.open_value("v").unwrap().unwrap();
    std::fs::OpenOptions::new().write(true).open(store.root().join("v")).unwrap().set_len(10).unwrap();
    let error = object.read_exact_at(&mut [0; 100], 0).unwrap_err();
    assert!(error.message().contains("changed in place"), "{error}");
    assert!(object.check_unchanged().unwrap_err().message().contains("has 10 now"));
}

/// Removes a file from the page cache, as far as its file system can.
#[cfg(target_os = "linux")]
fn make_cold(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn reads_the_same_around_the_page_cache_and_through_it() {
    // Temporary files are often in memory, where the page cache cannot be bypassed.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let value: Vec<u8> = (0..3_000_777u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    for direct_io in ["auto", "on", "off"] {
        let options = LocalOptions { direct_io: direct_io.parse().unwrap(), ..LocalOptions::default() };
        let store = LocalStore::with_options(directory.path(), options).unwrap();
        store.write("v", &value).unwrap();
        let path = directory.path().join("v");
        for (offset, size_bytes) in
            [(0, 3_000_777), (1, 2_999_999), (4096, 65_536), (777, 100_000), (2_900_777, 100_000)]
        {
            make_cold(&path);
            let read = store.get_range("v", ByteRange::Span { offset, size_bytes }).unwrap().unwrap();
            assert!(
                read == value[offset as usize..(offset + size_bytes) as usize],
                "{direct_io}: {offset}, {size_bytes}"
            );
        }
        // Now a part of the file is in the page cache.
        fs::File::open(&path).unwrap().read_exact(&mut vec![0; 1 << 20]).unwrap();
        assert!(store.get("v").unwrap().unwrap() == value);
    }
    assert_eq!("perhaps".parse::<DirectIo>().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
#[cfg(target_os = "linux")]
fn notices_a_cold_value_that_shrinks_while_it_is_open() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let options = LocalOptions { direct_io: DirectIo::On, ..LocalOptions::default() };
    let store = LocalStore::with_options(directory.path(), options).unwrap();
    store.write("v", &[7; 1 << 20]).unwrap();
    let object = store.open_value("v").unwrap().unwrap();
    let path = directory.path().join("v");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(500_000).unwrap();
    make_cold(&path);
    let error = object.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap_err();
    assert!(error.message().contains("changed in place"), "{error}");
}

#[test]
fn errors_name_store_and_key() {
    let (_directory, store) = store();
    store.write("c/0", b"123").unwrap();
    let error = store.get_range("c/0", ByteRange::Span { offset: 2, size_bytes: 2 }).unwrap_err().to_string();
    assert!(
        error.starts_with("file:///") && error.contains("key 'c/0'") && error.contains("it has 3 bytes"),
        "{error}"
    );
}

const CHILD: &str = "CUZARR_TEST_WRITE_UNTIL_KILLED";

/// The process that [`killed_writer_leaves_a_whole_value`] kills. It is not a test itself.
#[test]
fn child_that_writes_until_killed() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let store = LocalStore::new(root).unwrap();
    for i in 0u64.. {
        store.write("v", &vec![(i % 251) as u8; 4 << 20]).unwrap();
        println!("written");
    }
}

#[test]
fn killed_writer_leaves_a_whole_value() {
    use std::io::{BufRead, BufReader};
    let (_directory, store) = store();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::local::tests::child_that_writes_until_killed", "--nocapture"])
        .env(CHILD, store.root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.map_while(Result::ok).filter(|line| line.ends_with("written")).take(5).count(), 5);
    child.kill().unwrap();
    child.wait().unwrap();
    let value = store.get("v").unwrap().expect("five values were written");
    assert!(value.len() == 4 << 20 && value.iter().all(|&byte| byte == value[0]));
    assert_eq!(store.list("").unwrap(), ["v"]);
}
