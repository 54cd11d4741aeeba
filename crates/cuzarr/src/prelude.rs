//! The names that a first program needs: `use cuzarr::prelude::*;`.

pub use cuzarr_device::{DType, Device, HostElement, NdBuffer, Order, SmallNumber};

pub use crate::error::{Error, ErrorKind, Result};
pub use crate::meta::{DataType, ZarrFormat};
pub use crate::node::{Array, ArrayOptions, Group, HostData, Mode, Node, Values};
pub use crate::open::{create_group, open, open_array, open_group};
pub use crate::plan::{Regions, Selection, SliceArg};
pub use crate::store::{LocalStore, MemoryStore, Registry, Store, StoreExt};
