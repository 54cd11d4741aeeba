//! The C interface of cuzarr, with no logic of its own: each function checks pointers, calls one function of the crate
//! `cuzarr` and turns its result into C values. `include/cuzarr.h` is written from these sources by cbindgen, with
//! their comments, so comments of exported items are written for C programmers.
//!
//! | module | contents |
//! |---|---|
//! | `json` | options and descriptions of new arrays and groups, from JSON |
//! | `handle` | handles with tags, and texts |
//! | `error`, `cancellation` | handles of errors and of cancellations, and the call that lets no panic out |
//! | `memory` | regions of arrays and memory of the caller |
//! | `array`, `group`, `dlpack` | what is done with them |
//!
//! `unsafe` stands in all of them but `json`. C passes pointers, which only the caller can vouch for. Every `unsafe fn`
//! asks one thing: each pointer is null, or is what the header's first page and the page of the exported function say.

#![allow(non_camel_case_types)]

mod array;
mod cancellation;
mod dlpack;
mod error;
mod group;
mod handle;
mod json;
mod memory;

pub use error::{CUZARR_VERSION_MAJOR, CUZARR_VERSION_MINOR, CUZARR_VERSION_PATCH};
pub use memory::CUZARR_STREAM_READY;
