//! The examples, run: each checks its own answer.

#[path = "../examples/first_array.rs"]
mod first_array;
#[path = "../examples/larger_than_memory.rs"]
mod larger_than_memory;
#[cfg(feature = "ndarray")]
#[path = "../examples/ndarray_views.rs"]
mod ndarray_views;
#[path = "../examples/own_store.rs"]
mod own_store;
#[path = "../examples/sharded_on_gpu.rs"]
mod sharded_on_gpu;

#[test]
fn first_array_runs() {
    first_array::main().unwrap();
}

#[test]
fn sharded_on_gpu_runs() {
    sharded_on_gpu::main().unwrap();
}

#[test]
fn larger_than_memory_runs() {
    larger_than_memory::main().unwrap();
}

#[test]
fn own_store_runs() {
    own_store::main().unwrap();
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_views_runs() {
    ndarray_views::main().unwrap();
}

#[test]
fn the_readme_shows_lines_of_the_first_example() {
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines = |text: &'static str| text.lines().map(str::trim).filter(|line| !line.is_empty());
    let run: Vec<&str> = lines(include_str!("../examples/first_array.rs")).collect();
    for line in lines(shown) {
        assert!(run.contains(&line), "examples/first_array.rs does not run '{line}'");
    }
}
