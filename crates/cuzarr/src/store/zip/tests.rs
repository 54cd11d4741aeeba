use std::any::Any;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use super::directory::{END_BYTES, END64_BYTES, ENTRY_BYTES, LOCATOR64_BYTES};
use super::*;
use crate::run::Threads;
use crate::store::testing::Observed;
use crate::store::{Lease, LocalStore, MemoryStore, Prefixed, ReadOutcome, StoreExt};

/// Files that `tests/data/zip/make.py` made, with Python's zipfile and Info-ZIP's zip.
const GOLDEN: [(&str, &[u8]); 5] = [
    ("seekable", include_bytes!("../../../tests/data/zip/seekable.zip")),
    ("streamed", include_bytes!("../../../tests/data/zip/streamed.zip")),
    ("stored", include_bytes!("../../../tests/data/zip/stored.zip")),
    ("deflated", include_bytes!("../../../tests/data/zip/deflated.zip")),
    ("zip64", include_bytes!("../../../tests/data/zip/zip64.zip")),
];

fn members() -> Vec<(&'static str, Vec<u8>)> {
    let document = br#"{"zarr_format": 3, "node_type": "group", "attributes": {"title": "packed"}}"#;
    vec![
        ("a/c/0/1", (0..=255).collect::<Vec<u8>>().repeat(4)),
        ("a/empty", Vec::new()),
        ("a/long", b"the same over and over. ".repeat(500)),
        ("zarr.json", document.to_vec()),
    ]
}

fn holding(bytes: &[u8]) -> Arc<dyn Store> {
    let store = MemoryStore::new();
    store.write("in/x.zip", bytes).unwrap();
    Arc::new(store)
}

fn open(bytes: &[u8]) -> Result<ZipStore> {
    ZipStore::open(holding(bytes), "in/x.zip")
}

#[test]
fn reads_what_others_pack() {
    for (name, bytes) in GOLDEN {
        let store = open(bytes).unwrap();
        let keys: Vec<_> = members().iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(store.list("").unwrap(), keys, "{name}");
        let listing = store.list_dir("a").unwrap();
        assert_eq!((listing.keys.len(), listing.prefixes), (2, vec!["a/c".to_string()]), "{name}");
        for (key, value) in members() {
            assert_eq!(store.get(key).unwrap().as_deref(), Some(&value[..]), "{name}: {key}");
            assert_eq!(store.size_bytes(key).unwrap(), Some(value.len() as u64));
            let middle = ByteRange::Span { offset: value.len() as u64 / 3, size_bytes: value.len() as u64 / 2 };
            let expected = &value[value.len() / 3..value.len() / 3 + value.len() / 2];
            assert_eq!(store.get_range(key, middle).unwrap().as_deref(), Some(expected), "{name}: {key}");
            let end = store.get_range(key, ByteRange::Suffix { size_bytes: 7 }).unwrap().unwrap();
            assert_eq!(end, &value[value.len().saturating_sub(7)..], "{name}: {key}");
            let beyond = ByteRange::Span { offset: 1, size_bytes: value.len() as u64 };
            assert_eq!(store.get_range(key, beyond).unwrap_err().kind(), ErrorKind::StoreFailed);
        }
        assert_eq!(store.get("a/nothing").unwrap(), None);
        assert_eq!(store.get("../a").unwrap_err().kind(), ErrorKind::KeyInvalid);
        assert_eq!(store.get("a").unwrap(), None);
    }
}

#[test]
fn a_whole_member_is_one_request() {
    for (name, bytes) in GOLDEN {
        let seen = Arc::new(Observed::new(holding(bytes)));
        let store = ZipStore::open(Arc::clone(&seen) as Arc<dyn Store>, "in/x.zip").unwrap();
        seen.take_operations();
        let request = |key: &str| ReadRequest { key: key.into(), range: ByteRange::Full };
        let keys = ["zarr.json", "a/long", "no", "a/empty", "a/c/0/1"];
        let items = store.get_many(keys.iter().map(|key| request(key)).collect());
        let sizes: Vec<_> = items.into_iter().map(|item| item.unwrap().map(|value| value.len())).collect();
        assert_eq!(sizes, [Some(75), Some(12_000), None, Some(0), Some(1024)], "{name}");
        let operations = seen.take_operations();
        assert_eq!(operations.len(), 4, "{name}: {operations:?}");
        let part = ByteRange::Span { offset: 10, size_bytes: 20 };
        store.get_range("a/c/0/1", part).unwrap();
        assert_eq!(seen.take_reads().len(), 1, "{name}: the header was not needed any more");
    }
}

#[test]
fn a_directory_at_the_end_of_a_far_file_takes_one_read() {
    let seen = Arc::new(Observed::new(holding(GOLDEN[2].1)).with_read_delay(std::time::Duration::from_millis(1)));
    ZipStore::open(Arc::clone(&seen) as Arc<dyn Store>, "in/x.zip").unwrap();
    assert_eq!(seen.take_operations().len(), 2, "its size, and its end");
}

/// Makes a ZIP file of many members for tests. Between some of them are bytes that belong to no member.
fn with_gaps(count: usize) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (name, value) = (format!("c/{number}"), format!("value {number}"));
        let (local, entry) = records(&name, value.as_bytes(), file.len() as u32);
        file.extend(local);
        directory.extend(entry);
        let gap = if number == 50 { 70_000 } else { number % 3 * (number % 90) };
        file.extend(vec![b'x'; gap]);
    }
    [file.clone(), directory.clone(), ending(count as u64, directory.len() as u64, file.len() as u64)].concat()
}

#[test]
fn members_are_found_behind_gaps() {
    let bytes = with_gaps(200);
    let inner = holding(&bytes);
    for is_pooled in [false, true] {
        let store = ZipStore::open(Arc::clone(&inner), "in/x.zip").unwrap();
        let keys: Vec<_> = (0..200).map(|number| format!("c/{number}")).collect();
        let batch: Vec<_> = keys.iter().map(|key| ReadRequest { key: key.clone(), range: ByteRange::Full }).collect();
        let read = |store: &ZipStore| match is_pooled {
            false => store.get_many(batch.clone()).into_iter().map(|item| item.unwrap().unwrap()).collect::<Vec<_>>(),
            true => {
                let (sender, ended) = channel();
                store.read(batch.clone().into(), Arc::new(Many(sender)), &Threads::new(3));
                let mut found: Vec<_> = (0..batch.len()).map(|_| ended.recv().unwrap()).collect();
                found.sort_unstable_by_key(|(index, _)| *index);
                found.into_iter().map(|(_, bytes)| bytes).collect()
            }
        };
        for round in 0..2 {
            for (number, value) in read(&store).into_iter().enumerate() {
                assert_eq!(value, format!("value {number}").into_bytes(), "round {round}");
            }
        }
    }
}

/// A sink for tests that sends the bytes of each item to the test.
struct Many(Sender<(usize, Vec<u8>)>);

impl ReadSink for Many {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let Ok(ReadOutcome::Filled(mut lease)) = outcome else { panic!("{index}: {:?}", outcome.err()) };
        self.0.send((index, lease.bytes().to_vec())).unwrap();
    }
}

#[test]
fn reads_more_members_than_a_small_directory_can_count() {
    let bytes = with_gaps(100_000);
    let store = open(&bytes).unwrap();
    assert_eq!(store.list("").unwrap().len(), 100_000);
    for number in [0, 1, 65_535, 65_536, 99_999] {
        assert_eq!(store.get(&format!("c/{number}")).unwrap().unwrap(), format!("value {number}").into_bytes());
    }
}

/// Makes a ZIP file of `count` members for tests. Its end record has a 16-bit number of members, and says `told`.
fn with_small_count(count: usize, told: u16) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (local, entry) = records(&format!("c/{number}"), &[number as u8], file.len() as u32);
        file.extend(local);
        directory.extend(entry);
    }
    let [told, size, at] = [u32::from(told), directory.len() as u32, file.len() as u32].map(u32::to_le_bytes);
    let end = [b"PK\x05\x06", &[0; 4][..], &told[..2], &told[..2], &size, &at, &[0; 2]].concat();
    [file, directory, end].concat()
}

#[test]
fn reads_all_members_where_their_number_does_not_fit_its_record() {
    let count = 66_001;
    for told in [(count % 65_536) as u16, u16::MAX] {
        let store = open(&with_small_count(count, told)).unwrap();
        assert_eq!(store.list("").unwrap().len(), count, "the record says {told}");
        for number in [0, 464, 465, 65_535, 66_000] {
            assert_eq!(store.get(&format!("c/{number}")).unwrap(), Some(vec![number as u8]));
        }
    }
}

#[test]
fn a_number_of_members_that_contradicts_the_directory_is_refused() {
    let message = |bytes: &[u8]| open(bytes).unwrap_err().message().to_string();
    for told in [0, 5, 9, 11, u16::MAX] {
        let expected = format!("it claims {told} members, but its directory has 10");
        assert_eq!(message(&with_small_count(10, told)), expected);
    }
    let large = with_gaps(10);
    let count_at = large.len() - END_BYTES - LOCATOR64_BYTES - END64_BYTES + 24;
    for told in [0_u64, 9, 11, 10 + 65_536, u64::MAX] {
        let mut bytes = large.clone();
        bytes[count_at..count_at + 16].copy_from_slice(&[told, told].map(u64::to_le_bytes).concat());
        assert_eq!(message(&bytes), format!("it claims {told} members, but its directory has 10"));
    }
}

/// If the directory's size leaves out the first entry, the number of members does not agree.
#[test]
fn a_directory_whose_size_leaves_out_members_is_refused() {
    let mut bytes = with_small_count(10, 10);
    let size_at = bytes.len() - END_BYTES + 12;
    let entry_bytes = (ENTRY_BYTES + "c/0".len()) as u32;
    bytes[size_at..size_at + 4].copy_from_slice(&(9 * entry_bytes).to_le_bytes());
    assert!(open(&bytes).unwrap_err().message().contains("but its directory has 9"));
    bytes[size_at..size_at + 4].copy_from_slice(&(9 * entry_bytes + 1).to_le_bytes());
    assert_eq!(open(&bytes).unwrap_err().message(), "its directory is damaged");
}

#[test]
fn a_signature_behind_the_entries_is_no_member() {
    let bytes = with_small_count(3, 3);
    let (file, end) = bytes.split_at(bytes.len() - END_BYTES);
    let size = u32::from_le_bytes(end[12..16].try_into().unwrap()) + 10;
    let end = [&end[..12], &size.to_le_bytes(), &end[16..]].concat();
    let store = open(&[file, b"PK\x05\x05\x04\0sign", &end].concat()).unwrap();
    assert_eq!(store.list("").unwrap().len(), 3);
}

/// Appending writes a new directory, and keeps every member of the old one.
#[test]
fn appending_to_a_file_of_many_members_keeps_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    std::fs::write(&path, with_small_count(66_001, (66_001 % 65_536) as u16)).unwrap();
    let archive = ZipArchive::new(&path, ZipOptions { mode: ZipMode::Append, ..ZipOptions::default() }).unwrap();
    archive.write("new", b"1").unwrap();
    archive.finish().unwrap();
    let again = ZipArchive::new(&path, ZipOptions::default()).unwrap();
    assert_eq!(again.list("").unwrap().len(), 66_002);
    assert_eq!(again.get("c/66000").unwrap(), Some(vec![66_000_u32 as u8]));
}

#[test]
fn a_damaged_header_of_one_member_leaves_the_others_readable() {
    let mut bytes = GOLDEN[2].1.to_vec();
    let long = bytes.windows(6).position(|window| window == b"a/long").unwrap();
    bytes[long - 30] = b'X';
    let store = open(&bytes).unwrap();
    let part = ByteRange::Span { offset: 0, size_bytes: 5 };
    let keys = ["a/long", "zarr.json", "a/c/0/1"];
    let items = store.get_many(keys.iter().map(|key| ReadRequest { key: (*key).into(), range: part }).collect());
    let (first, others) = items.split_first().unwrap();
    assert!(first.as_ref().unwrap_err().message().contains("contradicts"));
    assert!(others.iter().all(|item| item.as_ref().unwrap().as_ref().unwrap().len() == 5));
}

#[test]
fn refuses_writes_and_tells_what_it_is() {
    let inner = holding(GOLDEN[2].1);
    let store = ZipStore::open(Arc::clone(&inner), "in/x.zip").unwrap();
    let refusals = [
        store.write("new", b"x").unwrap_err(),
        store.write_if_absent("zarr.json", b"x").unwrap_err(),
        store.delete("zarr.json").unwrap_err(),
        store.delete_prefix("a").unwrap_err(),
    ];
    assert!(refusals.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
    let said = store.capabilities();
    assert!(said.read_only && !said.deletes && said.divides_reads && !said.far);
    let below = Prefixed::new(Arc::clone(&inner), "in").unwrap();
    let again = ZipStore::open(Arc::new(below), "x.zip").unwrap();
    assert_eq!(again.identity(), store.identity());
    assert!(store.identity().overlaps(&inner.identity()));
}

#[test]
fn notices_that_the_file_was_replaced() {
    for (name, bytes) in [GOLDEN[2], GOLDEN[3]] {
        let inner = holding(bytes);
        let store = ZipStore::open(Arc::clone(&inner), "in/x.zip").unwrap();
        store.get("a/long").unwrap();
        inner.write("in/x.zip", bytes).unwrap();
        assert_eq!(store.get("a/long").unwrap_err().kind(), ErrorKind::StoreFailed, "{name}");
        inner.delete("in/x.zip").unwrap();
        assert_eq!(store.get("a/long").unwrap_err().kind(), ErrorKind::StoreFailed, "{name}");
    }
}

#[test]
fn members_that_overlap_or_lie_outside_are_refused() {
    let bytes = GOLDEN[2].1;
    let entries: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"PK\x01\x02")).collect();
    let mut overlapping = bytes.to_vec();
    let first: Vec<u8> = bytes[entries[1] + 42..entries[1] + 46].to_vec();
    overlapping[entries[2] + 42..entries[2] + 46].copy_from_slice(&first);
    let error = open(&overlapping).unwrap_err();
    assert!(error.message().contains("overlap"), "{error}");
    let mut outside = bytes.to_vec();
    outside[entries[1] + 42..entries[1] + 46].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    assert!(open(&outside).unwrap_err().message().contains("outside"));
    let mut many = bytes.to_vec();
    let end = bytes.len() - END_BYTES;
    many[end + 10..end + 12].copy_from_slice(&65_534u16.to_le_bytes());
    assert!(open(&many).unwrap_err().message().contains("claims 65534 members"));
    let mut bomb = GOLDEN[3].1.to_vec();
    let entry = (0..bomb.len()).find(|&at| bomb[at..].starts_with(b"PK\x01\x02") && bomb[at + 10] == 8).unwrap();
    bomb[entry + 24..entry + 28].copy_from_slice(&0xfff0_0000u32.to_le_bytes());
    assert!(open(&bomb).unwrap_err().message().contains("cannot have"));
}

/// Parts of a damaged file may still be read. They may be wrong if no checksum is verified. But nothing panics or uses
/// much memory.
#[test]
fn damaged_files_are_errors_or_answers() {
    for (name, bytes) in GOLDEN {
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).is_err(), "{name} cut to {length}");
        }
        let mut seed = 7u64;
        for _ in 0..3000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bit = (seed >> 20) as usize % (bytes.len() * 8);
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok(store) = open(&flipped) else { continue };
            for key in store.list("").unwrap() {
                if let Ok(Some(value)) = store.get_at_most(&key, 1 << 20) {
                    assert!(value.len() <= 1 << 20);
                }
            }
        }
    }
}

/// Damages bytes of each stored member in turn. A read of the whole member fails; a read of a part, and of other
/// members, succeeds.
#[test]
fn a_stored_member_that_is_damaged_fails_its_checksum_where_all_of_it_is_read() {
    let bytes = GOLDEN[2].1;
    for (key, value) in members().into_iter().filter(|(_, value)| !value.is_empty()) {
        let place = bytes.windows(value.len()).position(|window| window == value).unwrap();
        for at in (place..place + value.len()).step_by(value.len() / 5) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            let store = open(&damaged).unwrap();
            for range in [ByteRange::Full, ByteRange::From { offset: 0 }, ByteRange::Suffix { size_bytes: u64::MAX }] {
                let error = store.get_range(key, range).unwrap_err();
                assert_eq!((error.kind(), error.message()), (ErrorKind::StoreFailed, "the member's checksum is wrong"));
                assert!(error.trail().iter().any(|place| place.contains(key)), "{error}");
            }
            let part = ByteRange::Span { offset: 0, size_bytes: value.len() as u64 - 1 };
            assert_eq!(store.get_range(key, part).unwrap().unwrap(), damaged[place..place + value.len() - 1]);
            for (other, value) in members().into_iter().filter(|(other, _)| *other != key) {
                assert_eq!(store.get(other).unwrap(), Some(value));
            }
        }
    }
}

/// The memory of a vector that can be divided into parts. Parts that are split off are copied to a common place when
/// they are dropped.
struct Divisible {
    part: Vec<u8>,
    at: usize,
    all: Arc<Mutex<Vec<u8>>>,
}

impl Lease for Divisible {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.part
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        let part = self.part.split_off(at);
        Some(Box::new(Divisible { part, at: self.at + at, all: Arc::clone(&self.all) }))
    }
}

impl Drop for Divisible {
    fn drop(&mut self) {
        self.all.lock().unwrap()[self.at..self.at + self.part.len()].copy_from_slice(&self.part);
    }
}

/// A sink for tests that takes the bytes of a single item.
struct One(Arc<Mutex<Vec<u8>>>, Sender<Result<()>>);

impl ReadSink for One {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        *self.0.lock().unwrap() = vec![0; size_bytes as usize];
        Ok(Box::new(Divisible { part: vec![0; size_bytes as usize], at: 0, all: Arc::clone(&self.0) }))
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        self.1.send(outcome.map(|outcome| assert!(matches!(outcome, ReadOutcome::Filled(_))))).unwrap();
    }
}

/// Makes the header and data of a stored member, and its directory entry.
fn records(name: &str, value: &[u8], at: u32) -> (Vec<u8>, Vec<u8>) {
    let (crc, size, length) = (crc32fast::hash(value), value.len() as u32, name.len() as u16);
    let sizes = [crc.to_le_bytes(), size.to_le_bytes(), size.to_le_bytes()].concat();
    let names = [length.to_le_bytes(), [0; 2]].concat();
    let local = [b"PK\x03\x04", &[20, 0][..], &[0; 8], &sizes, &names, name.as_bytes(), value].concat();
    let at = at.to_le_bytes();
    let entry = [b"PK\x01\x02", &[20, 0, 20, 0][..], &[0; 8], &sizes, &names, &[0; 10], &at, name.as_bytes()].concat();
    (local, entry)
}

/// Makes the records after the directory: the ZIP64 records, and the record that points to them.
fn ending(count: u64, directory_bytes: u64, directory_at: u64) -> Vec<u8> {
    let fields: Vec<u8> = [count, count, directory_bytes, directory_at].iter().flat_map(|n| n.to_le_bytes()).collect();
    let end64 = [b"PK\x06\x06", &44u64.to_le_bytes()[..], &[45, 0, 45, 0], &[0; 8], &fields].concat();
    let locator =
        [b"PK\x06\x07", &[0; 4][..], &(directory_at + directory_bytes).to_le_bytes(), &1u32.to_le_bytes()].concat();
    [&end64[..], &locator, b"PK\x05\x06", &[0; 4], &[0xff; 12], &[0; 2]].concat()
}

/// Makes a ZIP file with one stored member of this name.
fn packed(name: &str, value: &[u8]) -> Vec<u8> {
    let (local, entry) = records(name, value, 0);
    let (entry_bytes, at) = ((entry.len() as u32).to_le_bytes(), (local.len() as u32).to_le_bytes());
    let end = [b"PK\x05\x06", &[0; 4][..], &[1, 0, 1, 0], &entry_bytes, &at, &[0; 2]].concat();
    [local, entry, end].concat()
}

#[test]
fn large_members_are_verified_by_the_threads_that_fill_their_parts() {
    let value: Vec<u8> = (0..5_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let directory = tempfile::tempdir().unwrap();
    for damaged_at in [None, Some(0), Some(3_000_000), Some(5_000_000)] {
        let mut bytes = packed("c/0", &value);
        let place = bytes.len() - value.len() - (END_BYTES + ENTRY_BYTES + 3);
        damaged_at.iter().for_each(|at| bytes[place + at] ^= 1);
        std::fs::write(directory.path().join("x.zip"), &bytes).unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
        let store = ZipStore::open(local, "x.zip").unwrap();
        let (all, (sender, ended)) = (Arc::default(), channel());
        let request = ReadRequest { key: "c/0".into(), range: ByteRange::Full };
        store.read(vec![request].into(), Arc::new(One(Arc::clone(&all), sender)), &Threads::new(3));
        match (ended.recv().unwrap(), damaged_at) {
            (Ok(()), None) => assert!(*all.lock().unwrap() == value),
            (Err(error), Some(_)) => assert_eq!(error.message(), "the member's checksum is wrong"),
            (outcome, _) => panic!("damaged at {damaged_at:?}: {outcome:?}"),
        }
    }
}

#[test]
fn a_deflated_member_that_is_damaged_fails_its_checksum() {
    let bytes = GOLDEN[3].1;
    let (mut wrong, mut right) = (0, 0);
    for at in 30..bytes.len() / 2 {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0x10;
        let Ok(store) = open(&damaged) else { continue };
        for (key, value) in members().into_iter().filter(|(key, _)| *key == "a/long") {
            match store.get(key) {
                Ok(Some(read)) if read == value => right += 1,
                Ok(Some(_)) => panic!("byte {at}: wrong bytes of {key}"),
                _ => wrong += 1,
            }
        }
    }
    assert!(wrong > 0 && right > 0);
}
