//! A process may be killed after any change that a copy makes: readers find whole arrays or none.

#[path = "../../cuzarr/tests/mortal/mod.rs"]
mod mortal;

use std::sync::Arc;

use cuzarr::node::Node;
use cuzarr_compute::{Changes, Existing, copy_node};
use mortal::{OLD, Operation, check_operations, root};

#[test]
fn a_copy_that_ends_after_any_change_leaves_old_or_new_arrays() {
    check_operations(&[Operation {
        name: "copy a group",
        is_consolidated: false,
        run: |store, _| {
            let source = Node::Group(root(Arc::clone(&store))?.group("g")?);
            copy_node(source, store, "a", &Changes::default(), Existing::Overwrite)?.run(&|_, _| ()).map(drop)
        },
        allowed: &[("a", &[OLD]), ("a/b", &[OLD]), ("a/h/c", &[OLD])],
        end: &["a/b", "a/h/c", "g/b", "g/h/c"],
    }]);
}
