//! Frames of other writers (programs of zstd, pigz, bgzip, libdeflate, igzip, zopfli, gzip; c-blosc, tensorstore, zarrs), decoded
//! on the host and on every device with kernels. `data/writers-2026-11/make.py` made them.

mod frames;
mod model;

use cuzarr_device::Device;
use frames::{Format, Frame, assert_decodes, devices, on_device, on_host};

const FRAMES: &[u8] = include_bytes!("data/writers-2026-11/frames.bin");

struct Case {
    format: Format,
    name: String,
    frame: Frame,
    checksum: u32,
}

fn cases() -> Vec<Case> {
    let (mut rest, mut cases) = (FRAMES, Vec::new());
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let format = match words[0] {
            "zstd" => Format::Zstd,
            "gzip" => Format::Gzip,
            "zlib" => Format::Zlib,
            _ => Format::Blosc,
        };
        let size: usize = words[3].parse().unwrap();
        let encoded = rest[end + 1..end + 1 + size].to_vec();
        let frame = Frame { encoded, decoded_bytes: words[1].parse().unwrap() };
        cases.push(Case { format, name: words[4].to_string(), frame, checksum: words[2].parse().unwrap() });
        rest = &rest[end + 1 + size..];
    }
    cases
}

#[test]
fn the_host_decodes_every_writers_frames() {
    let cases = cases();
    for writer in
        ["zstd --ultra -22", "pigz", "bgzip", "libdeflate", "igzip", "zopfli", "c-blosc", "tensorstore", "zarrs"]
    {
        assert!(cases.iter().any(|case| case.name.starts_with(writer)), "{writer}");
    }
    for Case { format, name, frame, checksum } in &cases {
        let decoded = on_host(*format, frame).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(crc32fast::hash(&decoded), *checksum, "{name}");
    }
}

#[test]
fn devices_decode_every_writers_frames() {
    for format in [Format::Zstd, Format::Gzip, Format::Zlib, Format::Blosc] {
        // Kernels leave blosclz to the host.
        let known = cases().into_iter().filter(|case| case.format == format && !case.name.contains("blosclz"));
        let (small, large): (Vec<Case>, Vec<Case>) = known.partition(|case| case.frame.decoded_bytes < 100_000);
        // Together, and the large ones alone, which go other ways.
        let plain = |case: &Case| on_host(format, &case.frame).unwrap();
        let frames: Vec<_> = small.iter().map(|case| case.frame.clone()).collect();
        assert_decodes(format, &frames, &small.iter().map(plain).collect::<Vec<_>>());
        for (index, case) in large.iter().enumerate() {
            // A device that is a CPU takes its time.
            for device in devices().into_iter().filter(|&device| device != Device::Simt || index % 4 == 0) {
                let decoded = on_device(device, format, std::slice::from_ref(&case.frame), true).remove(0);
                let decoded = decoded.unwrap_or_else(|error| panic!("{device}: {}: {error}", case.name));
                assert_eq!(crc32fast::hash(&decoded), case.checksum, "{device}: {}", case.name);
            }
        }
    }
}
