//! Casts against golden values of NumPy and ml_dtypes (`tests/data/numpy-2.5.5`, with the script that made them).

use std::collections::HashMap;

use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{DType, ErrorKind};

const GOLDEN: &str = include_str!("data/numpy-2.5.5/casts.txt");

fn dtypes() -> HashMap<String, DType> {
    // `complex64` has 64 bits, as its size says.
    DType::NUMBERS.into_iter().map(|dtype| (dtype.to_string(), dtype)).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Every pair of dtypes with source and expected elements.
fn cases() -> Vec<(DType, DType, Vec<u8>, Vec<u8>)> {
    let dtypes = dtypes();
    let mut cases = Vec::new();
    let mut source = (DType::BOOL, Vec::new());
    for line in GOLDEN.lines() {
        let [word, name, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        match word {
            "from" => source = (dtypes[name], bytes(hex)),
            _ => cases.push((source.0, dtypes[name], source.1.clone(), bytes(hex))),
        }
    }
    cases
}

#[test]
#[cfg(target_endian = "little")]
fn casts_give_numpys_bits() {
    let cases = cases();
    assert_eq!(cases.len(), 225);
    let mut wrong = Vec::new();
    for (from, to, source, expected) in cases {
        let mut got = vec![0; expected.len()];
        cast(from, to, &source, &mut got).unwrap();
        let elements = source.chunks(from.size_bytes()).zip(got.chunks(to.size_bytes()));
        for ((source, got), expected) in elements.zip(expected.chunks(to.size_bytes())) {
            if got != expected {
                wrong.push(format!("{from} {source:02x?} to {to}: got {got:02x?}, expected {expected:02x?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn casts_of_long_runs_equal_casts_of_single_elements() {
    for (from, to, source, expected) in cases() {
        let (source, expected) = (source.repeat(9), expected.repeat(9));
        let mut got = vec![0; expected.len()];
        cast(from, to, &source, &mut got).unwrap();
        assert!(got == expected, "{from} to {to}");
    }
}

#[test]
fn opaque_elements_and_wrong_lengths_are_refused() {
    let error = cast(DType::opaque(4), DType::INT32, &[0; 4], &mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(cast(DType::INT8, DType::INT16, &[0; 2], &mut [0; 3]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(cast(DType::INT16, DType::INT8, &[0; 3], &mut [0; 1]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(cast(DType::INT16, DType::INT8, &[], &mut []).is_ok());
}
