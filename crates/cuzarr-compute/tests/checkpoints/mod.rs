//! Checkpoints that tests make.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The bytes of a checkpoint, with the checksum that its document shall have.
pub fn sealed(mut document: Value) -> Vec<u8> {
    document.as_object_mut().unwrap().shift_remove("checksum");
    document["checksum"] = format!("{:x}", Sha256::digest(document.to_string())).into();
    document.to_string().into_bytes()
}
