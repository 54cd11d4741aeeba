//! Metadata files of Icechunk, versions 1 and 2 of its specification.
//!
//! Specification: <https://icechunk.io/en/latest/reference/spec/>. A file is a header of 39 bytes, followed by a
//! FlatBuffer that is compressed by zstd. Field numbers below are those of the schemas in
//! `icechunk-format/flatbuffers`.

use std::io::Read;

use cuzarr::{Error, ErrorKind, Result};

use super::flatbuffer::{Table, damaged};

const MAGIC: &[u8] = "ICE🧊CHUNK".as_bytes();
const HEADER_BYTES: usize = 39;

/// Largest size in bytes to which a metadata file is decompressed; a larger one is an error.
const DECOMPRESSED_MOST: u64 = 1 << 30;

/// Longest URL, in bytes, to which the stored URL of a virtual chunk is decompressed; a longer one is an error.
const LOCATION_MOST: usize = 16 << 10;

/// The 12 bytes by which Icechunk identifies a snapshot, a manifest or a chunk.
pub(crate) type ObjectId = [u8; 12];

/// The 8 bytes by which Icechunk identifies an array or a group.
pub(super) type NodeId = [u8; 8];

/// The kind of an Icechunk metadata file, such as a snapshot or a manifest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Snapshot = 1,
    Manifest = 2,
    Repository = 6,
}

impl FileKind {
    pub(super) const ALL: [FileKind; 3] = [FileKind::Snapshot, FileKind::Manifest, FileKind::Repository];
}

/// The digits of Douglas Crockford's base 32, in which file names are encoded.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Encodes an Icechunk identifier as it appears in a file name.
pub(super) fn encoded(id: &[u8]) -> String {
    let mut text = String::with_capacity(id.len() * 8 / 5 + 1);
    let (mut bits, mut count) = (0u32, 0);
    for &byte in id {
        (bits, count) = (bits << 8 | u32::from(byte), count + 8);
        while count >= 5 {
            count -= 5;
            text.push(char::from(ALPHABET[(bits >> count & 31) as usize]));
        }
    }
    if count > 0 {
        text.push(char::from(ALPHABET[(bits << (5 - count) & 31) as usize]));
    }
    text
}

/// Decodes an Icechunk identifier from a file name; `None` if it is invalid.
pub(super) fn decoded(text: &str) -> Option<ObjectId> {
    let mut id = ObjectId::default();
    let (mut bits, mut count, mut at) = (0u32, 0, 0);
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|&digit| digit == byte.to_ascii_uppercase())? as u32;
        (bits, count) = (bits << 5 | digit, count + 5);
        if count >= 8 {
            count -= 8;
            *id.get_mut(at)? = (bits >> count & 0xFF) as u8;
            at += 1;
        }
    }
    (at == id.len()).then_some(id)
}

/// Checks the header of a metadata file, and returns its decompressed FlatBuffer.
pub(super) fn content(file: &[u8], kind: FileKind) -> Result<Vec<u8>> {
    if !file.starts_with(MAGIC) || file.len() < HEADER_BYTES {
        return Err(damaged("it does not begin as files of Icechunk do"));
    }
    let (version, found, compression) = (file[36], file[37], file[38]);
    if version == 0 || version > 2 {
        let message = format!("the repository has version {version} of Icechunk's format, expected 1 or 2");
        return Err(Error::new(ErrorKind::UnsupportedFeature, message));
    }
    if found != kind as u8 {
        return Err(damaged(&format!("it is of kind {found}, expected {}", kind as u8)));
    }
    let body = &file[HEADER_BYTES..];
    match compression {
        0 => Ok(body.to_vec()),
        1 => {
            let failed = |error: std::io::Error| damaged(&format!("it cannot be decompressed: {error}"));
            let mut content = Vec::new();
            let decoder = zstd::Decoder::new(body).map_err(failed)?;
            decoder.take(DECOMPRESSED_MOST + 1).read_to_end(&mut content).map_err(failed)?;
            if content.len() as u64 > DECOMPRESSED_MOST {
                let message = format!("a metadata file has more than {DECOMPRESSED_MOST} bytes");
                return Err(Error::new(ErrorKind::BudgetExceeded, message));
            }
            Ok(content)
        }
        other => Err(damaged(&format!("compression {other} is not known"))),
    }
}

fn required<T>(found: Option<T>, name: &str) -> Result<T> {
    found.ok_or_else(|| damaged(&format!("'{name}' is missing")))
}

/// Returns the name of each branch or tag, with the snapshot that it refers to.
fn references(repository: &Table<'_>, field: usize, snapshots: &[ObjectId]) -> Result<Vec<(String, ObjectId)>> {
    let named = |reference: Result<Table<'_>>| {
        let reference = reference?;
        let name = required(reference.text(0)?, "name")?;
        let snapshot = snapshots.get(reference.u32(1)? as usize);
        Ok((name.to_string(), *required(snapshot, "snapshot")?))
    };
    repository.tables(field)?.map(named).collect()
}

/// The branches and tags that an Icechunk repository file lists.
pub(super) struct RepositoryFile {
    pub(super) branches: Vec<(String, ObjectId)>,
    pub(super) tags: Vec<(String, ObjectId)>,
}

impl RepositoryFile {
    pub(super) fn parse(content: &[u8]) -> Result<RepositoryFile> {
        let repository = Table::root(content)?;
        let id = |snapshot: Result<Table<'_>>| required(snapshot?.array::<12>(0)?, "id");
        let snapshots = repository.tables(4)?.map(id).collect::<Result<Vec<_>>>()?;
        Ok(RepositoryFile {
            branches: references(&repository, 2, &snapshots)?,
            tags: references(&repository, 1, &snapshots)?,
        })
    }
}

/// An array or group that an Icechunk snapshot lists.
pub(super) struct NodeEntry {
    pub(super) id: NodeId,
    /// The path of the array or group, without a leading slash.
    pub(super) path: String,
    /// The `zarr.json` of the array or group.
    pub(super) document: Vec<u8>,
    /// Identifiers of the manifests that list the array's chunks.
    pub(super) manifests: Vec<ObjectId>,
}

/// Returns the arrays and groups that a snapshot lists.
pub(super) fn nodes(content: &[u8]) -> Result<Vec<NodeEntry>> {
    Table::root(content)?.tables(2)?.map(|node| node_entry(&node?)).collect()
}

fn node_entry(node: &Table<'_>) -> Result<NodeEntry> {
    const ARRAY: u8 = 1;
    let path = required(node.text(1)?, "path")?;
    let mut manifests = Vec::new();
    if node.u8(3)? == ARRAY {
        for manifest in required(node.table(4)?, "node_data")?.tables(2)? {
            manifests.push(required(manifest?.array::<12>(0)?, "object_id")?);
        }
    }
    manifests.sort_unstable();
    manifests.dedup();
    Ok(NodeEntry {
        id: required(node.array(0)?, "id")?,
        path: path.strip_prefix('/').unwrap_or(path).to_string(),
        document: required(node.bytes(2)?, "user_data")?.to_vec(),
        manifests,
    })
}

/// Where the bytes of a chunk lie: in the manifest, in a file of the repository, or in another file.
pub(super) enum ChunkPlace<'a> {
    Inline(&'a [u8]),
    Native(ObjectId),
    Virtual(String),
}

/// An entry of an Icechunk manifest: where the bytes of one chunk lie.
pub(super) struct ChunkEntry<'a> {
    /// The chunk's coordinates in the chunk grid.
    pub(super) index: Vec<u32>,
    pub(super) place: ChunkPlace<'a>,
    pub(super) offset: u64,
    pub(super) size_bytes: u64,
    pub(super) etag: Option<&'a str>,
    /// Time in seconds since 1970 after which the file with the chunk must not have changed; 0 means that this is not
    /// checked.
    pub(super) changed_until: u32,
}

/// Returns the identifiers of the arrays whose chunks a manifest lists.
pub(super) fn array_ids(content: &[u8]) -> Result<Vec<NodeId>> {
    Table::root(content)?.tables(1)?.map(|array| required(array?.array::<8>(0)?, "node_id")).collect()
}

/// Calls `each` with every chunk of one array in a manifest.
pub(super) fn chunks(content: &[u8], node: &NodeId, mut each: impl FnMut(ChunkEntry<'_>) -> Result<()>) -> Result<()> {
    let manifest = Table::root(content)?;
    let dictionary = manifest.bytes(2)?.unwrap_or(&[]);
    let mut locations = zstd::bulk::Decompressor::with_dictionary(dictionary)
        .map_err(|error| damaged(&format!("its dictionary cannot be used: {error}")))?;
    for array in manifest.tables(1)? {
        let array = array?;
        if required(array.array::<8>(0)?, "node_id")? != *node {
            continue;
        }
        for chunk in array.tables(1)? {
            let chunk = chunk?;
            each(chunk_entry(&chunk, &mut locations)?)?;
        }
    }
    Ok(())
}

fn chunk_entry<'a>(chunk: &Table<'a>, locations: &mut zstd::bulk::Decompressor<'_>) -> Result<ChunkEntry<'a>> {
    let place = match (chunk.bytes(1)?, chunk.array::<12>(4)?, chunk.text(5)?, chunk.bytes(8)?) {
        (Some(bytes), ..) => ChunkPlace::Inline(bytes),
        (_, Some(id), ..) => ChunkPlace::Native(id),
        (_, _, Some(url), _) => ChunkPlace::Virtual(url.to_string()),
        (_, _, _, Some(compressed)) => {
            let url = locations.decompress(compressed, LOCATION_MOST);
            let url = url.map_err(|error| damaged(&format!("a URL cannot be decompressed: {error}")))?;
            ChunkPlace::Virtual(String::from_utf8(url).map_err(|_| damaged("a URL is not UTF-8"))?)
        }
        _ => return Err(damaged("a chunk is nowhere")),
    };
    Ok(ChunkEntry {
        index: chunk.arrays::<4>(0)?.iter().map(|&part| u32::from_le_bytes(part)).collect(),
        place,
        offset: chunk.u64(2)?,
        size_bytes: chunk.u64(3)?,
        etag: chunk.text(6)?,
        changed_until: chunk.u32(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_spelled_as_the_specification_does() {
        let id = [0x0b, 0x1c, 0xc8, 0xd6, 0x78, 0x75, 0x80, 0xf0, 0xe3, 0x3a, 0x65, 0x34];
        assert_eq!(encoded(&id), "1CECHNKREP0F1RSTCMT0");
        assert_eq!(decoded("1CECHNKREP0F1RSTCMT0"), Some(id));
        assert_eq!(decoded("1cechnkrep0f1rstcmt0"), Some(id));
        for text in ["", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMTU", "1CECHNKREP0F1RSTCMT00000"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let mut file = MAGIC.to_vec();
        file.extend([b' '; 24]);
        file.extend([2, 1, 0]);
        let kind = |file: &[u8]| content(file, FileKind::Snapshot).map(|_| ()).unwrap_err().kind();
        assert_eq!(kind(b""), ErrorKind::StoreFailed);
        assert_eq!(kind(&file[..20]), ErrorKind::StoreFailed);
        for (at, value, expected) in
            [(36, 3, ErrorKind::UnsupportedFeature), (37, 2, ErrorKind::StoreFailed), (38, 9, ErrorKind::StoreFailed)]
        {
            let mut other = file.clone();
            other[at] = value;
            assert_eq!(kind(&other), expected);
        }
        assert!(nodes(&content(&file, FileKind::Snapshot).unwrap()).is_err());
        // Every byte after the root's offset points somewhere else.
        for filling in 0..=255 {
            let bytes = vec![filling; 200];
            assert!(nodes(&bytes).is_ok_and(|nodes| nodes.is_empty()) || nodes(&bytes).is_err());
            assert!(chunks(&bytes, &[0; 8], |_| Ok(())).is_ok() || chunks(&bytes, &[0; 8], |_| Ok(())).is_err());
        }
    }
}
