//! Hints about files that are not stores: netCDF, HDF5 and tables of references.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The first bytes of an HDF5 file, by which such a file is recognized. netCDF-4 files begin with one, too.
const HDF5: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
const HDF5_PLACES: [u64; 4] = [0, 512, 1024, 2048];

/// Returns a hint for the user about a file that was found where a directory is expected, such as an HDF5 file. It
/// depends on the file's first bytes.
pub fn hint_about_file(place: &Path) -> String {
    let shown = place.display();
    let begin = bytes_at(place, 0);
    if HDF5_PLACES.iter().any(|&offset| bytes_at(place, offset) == *HDF5) {
        return format!(
            "it is an HDF5 or netCDF-4 file: call 'cuzarr references make {shown} -o table.json', then open \
             'reference::table.json'"
        );
    }
    if begin.starts_with(b"CDF") {
        return format!(
            "it is a file of netCDF's classic format: call 'nccopy -k nc4 {shown} new.nc' and 'cuzarr references make new.nc \
             -o table.json', then open 'reference::table.json'"
        );
    }
    if begin.trim_ascii_start().starts_with(b"{") {
        return format!("if it is a table of references, open 'reference::{shown}'");
    }
    "use a directory that contains zarr.json, .zarray or .zgroup".to_string()
}

/// Reads eight bytes at an offset in a file, to recognize its format; zeros beyond the file's end.
fn bytes_at(place: &Path, offset: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    let read = File::open(place).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.take(8).read(&mut bytes)
    });
    if read.is_ok() { bytes } else { [0; 8] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_follow_the_first_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let hint = |bytes: &[u8]| {
            let place = directory.path().join("file");
            std::fs::write(&place, bytes).unwrap();
            hint_about_file(&place)
        };
        for bytes in [&HDF5[..], &[&[0; 512][..], HDF5].concat()] {
            let hint = hint(bytes);
            assert!(hint.contains("references make") && hint.contains("reference::table.json"), "{hint}");
        }
        assert!(hint(b"CDF\x01").contains("nccopy -k nc4"));
        assert!(
            hint(b"  {\"refs\": {}}").contains(&format!("'reference::{}'", directory.path().join("file").display()))
        );
        assert!(hint(b"notes").contains("a directory that contains zarr.json"));
        assert!(hint(b"").contains("a directory that contains zarr.json"));
    }
}
