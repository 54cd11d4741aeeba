//! Any metadata with any stored chunk: nothing may panic, and no memory is taken that metadata does not allow.
//! Shared by the fuzz target and by the tests, which run it on mutations of golden chunks under stable Rust.

use cuzarr::internal::codec::Chain;
use cuzarr::meta::ArrayMetadata;
use cuzarr_device::Device;

/// Chunks beyond this are opened but not decoded, so that a run stays fast.
const MOST_BYTES: u64 = 1 << 22;

/// `zarr.json` or `.zarray`, a zero byte, and a stored chunk. Returns whether the chunk was decoded.
pub fn check(bytes: &[u8]) -> bool {
    let at = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (document, stored) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    [ArrayMetadata::from_json(document), ArrayMetadata::from_json_v2(document, None)]
        .into_iter()
        .flatten()
        .any(|metadata| Chain::new(&metadata).is_ok_and(|chain| check_chain(&chain, stored)))
}

fn check_chain(chain: &Chain, stored: &[u8]) -> bool {
    assert!(!chain.describe(Device::Cuda(0)).is_empty());
    let elements = chain.spec().elements().unwrap_or(u64::MAX);
    if let Some(sharding) = chain.sharding()
        && let Ok(index) = sharding.decode_index(stored)
        && index.validate(stored.len() as u64).is_ok()
    {
        assert!(
            (0..index.len()).filter_map(|at| index.get(at)).all(|(start, size)| start + size <= stored.len() as u64)
        );
    }
    if chain.is_variable() {
        return elements <= MOST_BYTES
            && chain.decode_variable(stored, 1 << 24).is_ok_and(|decoded| decoded.len() as u64 == elements);
    }
    let Ok(program) = chain.bind(Device::Cpu) else { return false };
    program.tail().check().expect("a chain's tail fits together");
    if program.packed_size_bytes() as u64 > MOST_BYTES {
        return false;
    }
    let mut packed = vec![0; program.packed_size_bytes()];
    let decoded = program.decode(stored, &mut packed).is_ok();
    // Whatever the elements are, encoding them is an answer or an error.
    if decoded && let Ok(encoded) = program.encode(&packed) {
        program.decode(&encoded, &mut packed).expect("what was encoded must be decodable");
    }
    decoded
}
