//! A store over a client that the program made itself.

use std::sync::Arc;

use cuzarr::store::{Registry, Store, conformance};
use cuzarr_remote::RemoteStore;
use cuzarr_remote::object_store::memory::InMemory;

#[test]
fn keeps_the_promises_of_every_store() {
    conformance::run(&|| Arc::new(RemoteStore::new(Arc::new(InMemory::new()))));
    conformance::run(&|| Arc::new(RemoteStore::new(Arc::new(InMemory::new())).with_conditional_writes()));
}

#[test]
fn two_stores_of_a_client_are_two_and_clones_are_one() {
    let client = Arc::new(InMemory::new());
    let (one, other) = (RemoteStore::new(client.clone()), RemoteStore::new(client));
    assert_ne!(one.identity(), other.identity());
    assert_eq!(one.identity(), one.clone().identity());
}

#[test]
fn cuzarr_names_this_crate_for_each_of_its_schemes() {
    let own = Registry::new();
    for scheme in cuzarr_remote::registry().schemes().filter(|scheme| !own.schemes().any(|known| known == *scheme)) {
        let error = own.open(&format!("{scheme}://a/b")).unwrap_err();
        assert!(error.hint().unwrap().contains("`cuzarr_remote::open`"), "{error}");
    }
}
