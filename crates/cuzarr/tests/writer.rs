//! Writers: random programs of rows beside a model, and what a killed program leaves.

mod model;
mod mortal;

use std::collections::BTreeMap;
use std::sync::Arc;

use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::node::{Array, ArrayOptions, Writer, WriterOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order, Stream};
use model::{Dice, bytes_codec, devices, metadata, sharding, zstd_codec};
use mortal::Mortal;
use serde_json::{Value, json};

/// An array of `int32` with 3 columns, whose rows are along `axis`, and a model of its rows.
struct Story {
    store: Arc<dyn Store>,
    axis: usize,
    device: Device,
    /// The rows that were given, each a number of which all elements are multiples.
    rows: BTreeMap<u64, i32>,
}

const COLUMNS: u64 = 3;

impl Story {
    fn new(store: Arc<dyn Store>, axis: usize, device: Device, (chunk, rows): (u64, u64), codecs: Value) -> Story {
        let at = |row: u64, column: u64| if axis == 0 { [row, column] } else { [column, row] };
        let shape = at(rows, COLUMNS);
        let new = metadata(&shape, &at(chunk, 2), "int32", json!(-1), codecs);
        let array = Array::create(Arc::clone(&store), "a", new, false, ArrayOptions::default()).unwrap();
        let story = Story { store, axis, device, rows: (0..rows).map(|row| (row, row as i32)).collect() };
        array.write_buffer(&Selection::all(&shape), &story.value(0..rows, |row| row as i32, Device::Cpu)).unwrap();
        story
    }

    fn open(&self) -> Array {
        let options = ArrayOptions::default().with_device(self.device);
        Array::open(Arc::clone(&self.store), "a", options).unwrap()
    }

    fn value(&self, rows: std::ops::Range<u64>, of: impl Fn(u64) -> i32, device: Device) -> NdBuffer {
        let (count, columns) = ((rows.end - rows.start) as usize, COLUMNS as usize);
        let element = |row: usize, column: usize| of(rows.start + row as u64) * (column as i32 + 1);
        let (shape, values): (_, Vec<i32>) = match self.axis {
            0 => ([count, columns], (0..count * columns).map(|at| element(at / columns, at % columns)).collect()),
            _ => ([columns, count], (0..count * columns).map(|at| element(at % count, at / count)).collect()),
        };
        NdBuffer::from_slice(device, &values, &shape).unwrap()
    }

    /// Checks that the array ends before the first row that was not given, and has the rows before it.
    fn check(&self, what: &str) {
        let end = (0..).find(|row| !self.rows.contains_key(row)).unwrap();
        self.check_until(end, what);
    }

    fn check_until(&self, end: u64, what: &str) {
        let array = self.open();
        assert_eq!(array.shape()[self.axis], end, "{what}");
        let found = array.read_buffer(&Selection::all(array.shape())).unwrap().to_host_bytes(Order::C).unwrap();
        let expected = self.value(0..end, |row| self.rows[&row], Device::Cpu).to_host_bytes(Order::C).unwrap();
        assert!(found == expected, "{what}: wrong elements");
    }
}

fn chains() -> Vec<Value> {
    vec![
        json!([bytes_codec("little")]),
        json!([bytes_codec("little"), zstd_codec()]),
        sharding(&[1, 1], json!([bytes_codec("little")]), "end"),
    ]
}

#[test]
fn rows_in_any_order_and_pieces_reach_the_array() {
    let mut dice = Dice(11);
    for device in devices() {
        for round in 0..40 {
            let (axis, chunk, slots) = (dice.below(2) as usize, 1 + dice.below(5), 1 + dice.below(3) as usize);
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let codecs = dice.pick(&chains());
            let mut story = Story::new(store, axis, device, (chunk, dice.below(12)), codecs);
            let mut writer = story.open().writer(axis, WriterOptions { slots, ..WriterOptions::default() }).unwrap();
            let (mut end, mut refused) = (writer.position(), 0);
            let stream = Stream::new(device).unwrap();
            for step in 0..dice.below(30) {
                let what = format!("{device}, round {round}, step {step}");
                let (count, tag) = (dice.below(2 * chunk + 2), 1000 * step as i32);
                let of = move |row: u64| row as i32 + tag;
                let from = if dice.chance(4) { Device::Cpu } else { device };
                match dice.below(12) {
                    0 => {
                        writer.flush().unwrap();
                        story.check(&what);
                        assert_eq!(writer.position(), (0..).find(|row| !story.rows.contains_key(row)).unwrap());
                    }
                    1..4 => {
                        let row = end.saturating_sub(dice.below(4)) + dice.below(5);
                        match writer.write(0, row, &story.value(row..row + count, of, from), Some(&stream)) {
                            Ok(()) => {
                                story.rows.extend((row..row + count).map(|row| (row, of(row))));
                                end = end.max(if count > 0 { row + count } else { 0 });
                            }
                            // There was no memory for rows so far ahead.
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
                                refused += 1;
                            }
                        }
                    }
                    kind => {
                        let value = story.value(end..end + count, of, from);
                        let given = match kind {
                            4..6 => writer.add(&[(0, value, None)], None, true),
                            _ => writer.append(0, &value, if from == device { Some(&stream) } else { None }),
                        };
                        match given {
                            Ok(()) => {
                                story.rows.extend((end..end + count).map(|row| (row, of(row))));
                                end += count;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
                                refused += 1;
                            }
                        }
                    }
                }
            }
            assert!(refused < 30);
            writer.close().unwrap();
            writer.close().unwrap();
            story.check(&format!("{device}, round {round}, after the end"));
        }
    }
}

#[test]
fn each_object_is_written_once_and_the_shape_behind_it() {
    let observed = Arc::new(Observed::new(Arc::new(MemoryStore::new())));
    let story = Story::new(observed.clone(), 0, Device::Cpu, (4, 0), json!([bytes_codec("little")]));
    let mut writer = story.open().writer(0, WriterOptions::default()).unwrap();
    observed.take_operations();
    for row in 0..12 {
        writer.append(0, &story.value(row..row + 1, |row| row as i32, Device::Cpu), None).unwrap();
    }
    writer.close().unwrap();
    let written = observed.take_operations().into_iter().filter_map(|operation| match operation {
        Operation::Write(key, _) => Some(key),
        _ => None,
    });
    let written: Vec<String> = written.collect();
    let chunks: Vec<&String> = written.iter().filter(|key| key.contains("/c/")).collect();
    assert_eq!(chunks.len(), 6, "{written:?}");
    // The shape grows behind the chunks of its rows, not before.
    let documents: Vec<usize> = (0..written.len()).filter(|&at| written[at] == "a/zarr.json").collect();
    assert!(documents.last() == Some(&(written.len() - 1)) && documents[0] >= 2, "{written:?}");
}

#[test]
fn transactional_stores_get_the_shape_before_the_rows() {
    let observed = Arc::new(Observed::new(Arc::new(MemoryStore::new())).transactional());
    let mut story = Story::new(observed.clone(), 0, Device::Cpu, (4, 2), json!([bytes_codec("little")]));
    let mut writer = story.open().writer(0, WriterOptions::default()).unwrap();
    observed.take_operations();
    for row in 2..11 {
        writer.append(0, &story.value(row..row + 1, |row| row as i32, Device::Cpu), None).unwrap();
        story.rows.insert(row, row as i32);
    }
    writer.close().unwrap();
    let written = observed.take_operations().into_iter().filter_map(|operation| match operation {
        Operation::Write(key, _) => Some(key),
        _ => None,
    });
    let written: Vec<String> = written.collect();
    assert_eq!(written[0], "a/zarr.json", "{written:?}");
    assert!(written.last().unwrap().contains("/c/"), "{written:?}");
    story.check("after the end");
}

#[test]
fn failures_come_with_the_next_call_and_stay() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let failing = Observed::new(Arc::clone(&memory)).with_failure(|operation| match operation {
        Operation::Write(key, _) if key.contains("/c/2/") => {
            Some(Error::new(ErrorKind::StoreFailed, "the disk is full"))
        }
        _ => None,
    });
    let mut story = Story::new(Arc::new(failing), 0, Device::Cpu, (2, 0), json!([bytes_codec("little")]));
    let mut writer = story.open().writer(0, WriterOptions::default()).unwrap();
    let append = |writer: &mut Writer, row: u64| {
        writer.append(0, &story.value(row..row + 1, |row| row as i32, Device::Cpu), None)
    };
    let error = (0..100).find_map(|row| append(&mut writer, row).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    let text = error.to_string();
    assert!(text.contains("the disk is full") && text.contains("rows 4 to 5"), "{text}");
    assert_eq!(append(&mut writer, 0).unwrap_err().to_string(), text);
    assert_eq!(writer.flush().unwrap_err().to_string(), text);
    assert_eq!(writer.position(), 4);
    assert_eq!(writer.close().unwrap_err().to_string(), text);
    writer.close().unwrap();
    story.rows = (0..4).map(|row| (row, row as i32)).collect();
    story.check("after a failure");
}

#[test]
fn nothing_else_changes_the_shape_meanwhile() {
    let story = Story::new(Arc::new(MemoryStore::new()), 0, Device::Cpu, (2, 3), json!([bytes_codec("little")]));
    let mut writer = story.open().writer(0, WriterOptions::default()).unwrap();
    let kind = |outcome: Result<()>| outcome.unwrap_err();
    let mut other = story.open();
    for error in [
        kind(other.append_buffer(0, &story.value(3..4, |_| 9, Device::Cpu))),
        kind(other.resize(vec![1, COLUMNS])),
        kind(story.open().writer(0, WriterOptions::default()).map(drop)),
    ] {
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("writer"), "{error}");
        assert!(error.to_string().contains("array '/a'"), "{error}");
    }
    writer.close().unwrap();
    other.append_buffer(0, &story.value(3..4, |_| 9, Device::Cpu)).unwrap();
    // A change by another process is seen when the writer stores its rows, and nothing of it is lost.
    let mut writer = story.open().writer(0, WriterOptions::default()).unwrap();
    let text = String::from_utf8(story.store.get("a/zarr.json").unwrap().unwrap()).unwrap();
    let longer = text.replacen('4', "7", 1);
    assert_ne!(text, longer);
    story.store.write("a/zarr.json", longer.as_bytes()).unwrap();
    writer.append(0, &story.value(4..6, |_| 5, Device::Cpu), None).unwrap();
    let error = writer.close().unwrap_err().to_string();
    assert!(error.contains("another append or resize changed the shape to [7, 3]"), "{error}");
    assert_eq!(story.open().shape(), [7, COLUMNS]);
}

#[test]
fn values_that_do_not_fit_are_refused_and_the_writer_goes_on() {
    let mut story = Story::new(Arc::new(MemoryStore::new()), 0, Device::Cpu, (4, 0), json!([bytes_codec("little")]));
    let mut writer = story.open().writer(0, WriterOptions { slots: 1, ..WriterOptions::default() }).unwrap();
    let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
    let of = |shape: &[usize]| NdBuffer::zeroed(Device::Cpu, DType::INT32, shape, Order::C).unwrap();
    assert_eq!(kind(writer.append(0, &of(&[2, 2]), None)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(writer.append(0, &of(&[1, 1, 3]), None)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(writer.append(1, &of(&[1, 3]), None)), ErrorKind::InvalidArgument);
    assert_eq!(kind(writer.write(0, u64::MAX, &of(&[1, 3]), None)), ErrorKind::OutOfRange);
    writer.write(0, 1, &of(&[3]), None).unwrap();
    // Rows far ahead need memory for another block.
    assert_eq!(kind(writer.write(0, 9, &of(&[3]), None)), ErrorKind::InvalidArgument);
    // Elements are converted.
    writer.write(0, 0, &NdBuffer::from_slice(Device::Cpu, &[7_u8, 14, 21], &[3]).unwrap(), None).unwrap();
    writer.append(0, &of(&[0, 3]), None).unwrap();
    writer.close().unwrap();
    assert_eq!(kind(writer.append(0, &of(&[3]), None)), ErrorKind::InvalidArgument);
    story.rows = [(0, 7), (1, 0)].into();
    story.check("after refusals");
    let open = |options: WriterOptions| story.open().writer(0, options).map(drop);
    assert_eq!(kind(open(WriterOptions { slots: 0, ..WriterOptions::default() })), ErrorKind::InvalidArgument);
    assert_eq!(kind(story.open().writer(2, WriterOptions::default()).map(drop)), ErrorKind::InvalidArgument);
}

#[test]
fn several_writers_fill_regions_of_whole_objects() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let new = metadata(&[10, 6], &[4, 3], "int32", json!(0), json!([bytes_codec("little")]));
    Array::create(Arc::clone(&store), "a", new, false, ArrayOptions::default()).unwrap();
    let open = || Array::open(Arc::clone(&store), "a", ArrayOptions::default()).unwrap();
    let region = |start: [u64; 2], extent: [u64; 2]| WriterOptions {
        region: Some((start.to_vec(), extent.to_vec())),
        ..WriterOptions::default()
    };
    let error = open().writer(0, region([3, 0], [5, 3])).err().unwrap().to_string();
    assert!(error.contains("region 3..8") && error.contains("0..8"), "{error}");
    assert!(open().writer(0, region([0, 0], [4, 4])).is_err());
    assert_eq!(open().writer(0, region([8, 0], [4, 3])).err().unwrap().kind(), ErrorKind::OutOfRange);
    std::thread::scope(|threads| {
        for (start, extent) in [([0, 0], [8, 3]), ([8, 0], [2, 3]), ([0, 3], [10, 3])] {
            let mut writer = open().writer(0, region(start, extent)).unwrap();
            threads.spawn(move || {
                let refused = NdBuffer::zeroed(Device::Cpu, DType::INT32, &[3], Order::C).unwrap();
                let end = start[0] + extent[0];
                assert_eq!(writer.write(0, end, &refused, None).unwrap_err().kind(), ErrorKind::OutOfRange);
                for row in (start[0]..end).rev().collect::<Vec<_>>().chunks(1).rev() {
                    let row = row[0];
                    let values: Vec<i32> = (0..3).map(|column| (10 * row + start[1] + column) as i32).collect();
                    writer.append(0, &NdBuffer::from_slice(Device::Cpu, &values, &[1, 3]).unwrap(), None).unwrap();
                }
                assert_eq!(writer.position(), writer.position());
                writer.close().unwrap();
                assert_eq!(writer.position(), end);
            });
        }
    });
    let expected: Vec<i32> = (0..10).flat_map(|row| (0..6).map(move |column| 10 * row + column)).collect();
    assert_eq!(open().read::<i32>(&Selection::all(&[10, 6])).unwrap()[..], expected[..]);
}

#[test]
fn several_arrays_grow_together() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let create = |path: &str, shape: &[u64], chunks: &[u64]| {
        let new = metadata(shape, chunks, "uint8", json!(0), json!([bytes_codec("little")]));
        Array::create(Arc::clone(&store), path, new, false, ArrayOptions::default()).unwrap()
    };
    let arrays =
        vec![(create("v", &[0, 2], &[3, 2]), 0), (create("u", &[2, 0], &[2, 5]), 1), (create("time", &[0], &[1]), 0)];
    let mut writer = Writer::new(arrays, &WriterOptions::default()).unwrap();
    for step in 0..8_u8 {
        let row = NdBuffer::from_slice(Device::Cpu, &[step, step + 1], &[2]).unwrap();
        writer.append(0, &row, None).unwrap();
        writer.append(1, &row, None).unwrap();
        writer.append(2, &NdBuffer::from_slice(Device::Cpu, &[step], &[1]).unwrap(), None).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!(writer.position(), 8);
    writer.close().unwrap();
    let read = |path: &str| {
        let array = Array::open(Arc::clone(&store), path, ArrayOptions::default()).unwrap();
        (array.shape().to_vec(), array.read::<u8>(&Selection::all(array.shape())).unwrap().into_vec())
    };
    assert_eq!(read("time"), (vec![8], (0..8).collect()));
    assert_eq!(read("v"), (vec![8, 2], (0..8).flat_map(|step| [step, step + 1]).collect()));
    assert_eq!(read("u"), (vec![2, 8], (0..8).chain(1..9).collect()));
}

#[test]
fn a_killed_program_leaves_whole_blocks_and_another_goes_on() {
    let mut dice = Dice(5);
    let mut kills = 0;
    for round in 0..120 {
        let (axis, chunk, before) = (dice.below(2) as usize, 1 + dice.below(4), dice.below(5));
        let codecs = dice.pick(&chains());
        let steps: Vec<(u64, bool)> =
            (0..2 + dice.below(6)).map(|_| (dice.below(2 * chunk + 1), dice.chance(5))).collect();
        for most in 0.. {
            let start = Story::new(Arc::new(MemoryStore::new()), axis, Device::Cpu, (chunk, before), codecs.clone());
            let mortal = Mortal::new(&mortal::values(&*start.store), most);
            let mut story = Story { store: mortal.clone(), ..start };
            let mut writer = story.open().writer(axis, WriterOptions::default()).unwrap();
            let (mut end, mut flushed, mut ended) = (before, before, Ok(()));
            for (count, flushes) in &steps {
                let value = story.value(end..end + count, |row| row as i32 + 100, Device::Cpu);
                if ended.is_ok() {
                    // Some rows of a call that fails may be stored.
                    story.rows.extend((end..end + count).map(|row| (row, row as i32 + 100)));
                    ended = writer.append(0, &value, None);
                }
                end += if ended.is_ok() { *count } else { 0 };
                if *flushes && ended.is_ok() {
                    ended = writer.flush();
                    flushed = if ended.is_ok() { end } else { flushed };
                }
            }
            let all: u64 = steps.iter().map(|(count, _)| count).sum();
            let ended = ended.and_then(|()| writer.close());
            drop(writer);
            // What another process finds.
            let dead: Arc<dyn Store> = Arc::new(MemoryStore::new());
            mortal::values(&mortal.values).iter().for_each(|(key, value)| dead.write(key, value).unwrap());
            story.store = dead;
            let found = story.open().shape()[axis];
            let what = format!("round {round}, {most} changes, ended {ended:?}");
            assert!(found >= flushed && found <= before + all, "{what}: {found}");
            let is_whole = found.is_multiple_of(chunk) || found == before || found == before + all;
            let of_flush = steps.iter().scan(before, |at, (count, flushes)| {
                *at += count;
                Some((*at, *flushes))
            });
            assert!(is_whole || of_flush.clone().any(|(at, flushes)| flushes && at == found), "{what}: {found}");
            story.rows.extend((found..before + all).map(|row| (row, row as i32 + 100)));
            story.check_until(found, &what);
            let mut writer =
                story.open().writer(axis, WriterOptions { resume: true, ..WriterOptions::default() }).unwrap();
            assert_eq!(writer.position(), found);
            assert_eq!(story.open().foreign_keys().unwrap(), Vec::<String>::new(), "{what}: chunks are left");
            writer.append(0, &story.value(found..before + all, |row| row as i32 + 100, Device::Cpu), None).unwrap();
            writer.close().unwrap();
            story.check_until(before + all, &what);
            kills += 1;
            if ended.is_ok() {
                break;
            }
        }
    }
    assert!(kills > 1000, "{kills}");
}
