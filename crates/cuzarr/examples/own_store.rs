//! URLs of one's own: a scheme that opens the results of a run by its number, for reading.

use std::sync::Arc;

use cuzarr::ResultExt;
use cuzarr::node;
use cuzarr::prelude::*;
use cuzarr::store::{Prefixed, ReadOnly};

pub(crate) fn main() -> Result<()> {
    // Any `Store` will do: this one keeps its values in memory. The module `store` says how to write another.
    let results: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for run in 0..3 {
        let array =
            Array::builder([4], DataType::Int32).create_in(Arc::clone(&results), &format!("run-{run:03}/loss"))?;
        array.write(&Selection::all(&[4]), &[run, run + 1, run + 2, run + 3])?;
    }

    let registry = Registry::new().with("run", move |_registry, url| {
        let number: u32 = url.path().parse().map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("'{url}': got no number of a run"))
                .with_hint("write 'run://7'")
        })?;
        let run = Prefixed::new(Arc::clone(&results), &format!("run-{number:03}")).at(|| url.to_string())?;
        Ok(Arc::new(ReadOnly::new(Arc::new(run))))
    });

    let loss = Array::open(registry.open("run://2")?, "loss", ArrayOptions::default())?;
    assert_eq!(loss.read::<i32>(&Selection::all(loss.shape()))?[..], [2, 3, 4, 5]);
    assert_eq!(loss.write(&Selection::all(&[4]), &[0; 4]).unwrap_err().kind(), ErrorKind::ReadOnly);

    let Node::Group(run) = node::open_existing(registry.open("run://0")?, "", None, ArrayOptions::default())? else {
        unreachable!("a run is a group");
    };
    let members: Vec<String> = run.members(None)?.into_iter().map(|(path, _)| path).collect();
    assert_eq!(members, ["loss"]);
    assert!(registry.open("run://last").unwrap_err().hint().is_some());
    println!("{run:?}: {members:?}");
    Ok(())
}
