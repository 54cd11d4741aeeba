//! Reads of many arrays in one pipeline: each must get its own elements, whatever keys, shapes and codecs the others have.

mod model;

use std::sync::Arc;

use cuzarr::internal::plan::ResultOf;
use cuzarr::internal::run::{Access, ArrayRead, ArrayResult, tuning};
use cuzarr::plan::{Selection, SliceArg};
use cuzarr::run::{Report, Stage};
use cuzarr::store::{LocalStore, MemoryStore, Store, StoreExt};
use cuzarr::{ErrorKind, Result};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, devices, kernel_devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

/// An array with random elements. Some chunks are missing.
fn story(
    shape: &[u64],
    chunks: &[u64],
    data_type: &str,
    codecs: Value,
    store: Arc<dyn Store>,
    dice: &mut Dice,
) -> Story {
    let mut story = Story::new(metadata(shape, chunks, data_type, json!(7), codecs), store);
    for _ in 0..3 {
        let part = story.random_selection(dice);
        let count = part.len().unwrap() as usize * story.element_bytes;
        let value: Vec<u8> = (0..count).map(|_| dice.below(4) as u8).collect();
        // Elements that are named several times have several values.
        if part.axes().is_some() {
            story.write(Device::Cpu, &part, &value);
        }
    }
    story
}

/// Reads a selection of each array at once, and compares each result with the model.
fn check(stories: &[Story], device: Device, selections: &[Selection], what: &str) -> Report {
    let accesses: Vec<_> = stories.iter().map(|story| story.access(device)).collect();
    let out = |(story, selection): (&Story, &Selection)| {
        let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
        let out = NdBuffer::empty(device, story.dtype, &shape, Order::C).unwrap();
        // What was not written by the read is seen.
        out.fill(&vec![0xAB; story.element_bytes]).unwrap();
        out
    };
    let outs: Vec<NdBuffer> = stories.iter().zip(selections).map(out).collect();
    let report = read_all(stories, &accesses, selections, &outs).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for (number, ((story, selection), out)) in stories.iter().zip(selections).zip(&outs).enumerate() {
        let read = out.to_host_bytes(Order::C).unwrap();
        assert!(read == story.expected(selection), "{what}: {device}: array {number} {selection}: wrong elements");
    }
    assert_eq!(stories[0].engine.memory(device).used_bytes(), 0, "{what}: memory is given back");
    report
}

fn read_all(stories: &[Story], accesses: &[Access], selections: &[Selection], outs: &[NdBuffer]) -> Result<Report> {
    let result = |(selection, out)| [ArrayResult { of: ResultOf::One(selection), out }];
    let results: Vec<_> = selections.iter().zip(outs).map(result).collect();
    let reads = stories.iter().zip(accesses).zip(&results);
    let reads: Vec<ArrayRead<'_>> = reads
        .map(|((story, access), results)| ArrayRead { access, store: &story.store, name: "array", results })
        .collect();
    stories[0].engine.read_all(&reads, &stories[0].options)
}

#[test]
fn stores_whose_arrays_share_all_keys_are_kept_apart() {
    let mut dice = Dice(1);
    let codecs = sharding(&[4, 5], json!([bytes_codec("little"), zstd_codec()]), "end");
    for is_local in [false, true] {
        let folders: Vec<_> = (0..64).map(|_| tempfile::tempdir().unwrap()).collect();
        let store = |number: usize| -> Arc<dyn Store> {
            match is_local {
                true => Arc::new(LocalStore::new(folders[number].path()).unwrap()),
                false => Arc::new(MemoryStore::new()),
            }
        };
        let mut stories: Vec<Story> = (0..64)
            .map(|number| story(&[13, 21], &[8, 10], "uint16", codecs.clone(), store(number), &mut dice))
            .collect();
        for device in devices() {
            for force_device in [false, true] {
                tuning(&mut stories[0].options).force_device = force_device;
                let all: Vec<Selection> = stories.iter().map(|_| Selection::all(&[13, 21])).collect();
                check(&stories, device, &all, "whole arrays");
                let parts: Vec<Selection> = stories.iter().map(|story| story.random_selection(&mut dice)).collect();
                check(&stories, device, &parts, "parts");
            }
        }
    }
}

#[test]
fn arrays_of_any_shapes_types_and_codecs_are_read_at_once() {
    let mut dice = Dice(2);
    let chains = |ndim: usize| -> Vec<Value> {
        let turned: Vec<usize> = (0..ndim).rev().collect();
        vec![
            json!([bytes_codec("little")]),
            json!([bytes_codec("big"), zstd_codec()]),
            json!([bytes_codec("little"), zstd_codec(), {"name": "crc32c"}]),
            json!([{"name": "transpose", "configuration": {"order": turned}}, bytes_codec("little"),
                {"name": "gzip", "configuration": {"level": 1}}]),
            json!([{"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}, bytes_codec("little"), zstd_codec()]),
        ]
    };
    for round in 0..12 {
        let mut stories = Vec::new();
        for _ in 0..1 + dice.below(9) {
            let ndim = 1 + dice.below(3) as usize;
            let shape: Vec<u64> = (0..ndim).map(|_| 1 + dice.below(14)).collect();
            let chunks: Vec<u64> = (0..ndim).map(|_| 1 + dice.below(6)).collect();
            let codecs = dice.pick(&chains(ndim));
            let has_delta = codecs[0]["name"] == "numcodecs.delta";
            let data_type = if has_delta { "int32" } else { dice.pick(&["uint8", "int16", "int32", "float64"]) };
            stories.push(story(&shape, &chunks, data_type, codecs, Arc::new(MemoryStore::new()), &mut dice));
        }
        // Little memory makes many batches.
        stories[0].options.memory_limit_bytes = if round % 3 == 0 { 1 << 14 } else { 1 << 28 };
        tuning(&mut stories[0].options).force_device = round % 2 == 0;
        for device in devices() {
            let parts: Vec<Selection> = stories.iter().map(|story| story.random_selection(&mut dice)).collect();
            check(&stories, device, &parts, &format!("round {round}"));
        }
    }
}

#[test]
fn results_of_one_array_are_apart_and_decode_a_chunk_once() {
    let mut dice = Dice(6);
    let chains = [
        json!([bytes_codec("little")]),
        json!([bytes_codec("big"), zstd_codec()]),
        sharding(&[2, 3], json!([bytes_codec("little"), zstd_codec()]), "start"),
    ];
    for round in 0..30 {
        let codecs = dice.pick(&chains);
        let mut stories: Vec<Story> = (0..1 + dice.below(3))
            .map(|_| {
                let shape = [1 + dice.below(20), 1 + dice.below(20)];
                story(&shape, &[4, 6], "int32", codecs.clone(), Arc::new(MemoryStore::new()), &mut dice)
            })
            .collect();
        tuning(&mut stories[0].options).force_device = round % 2 == 0;
        stories[0].options.memory_limit_bytes = if round % 3 == 0 { 1 << 14 } else { 1 << 28 };
        // For each array some selections of any shape, and boxes of one shape that are stacked.
        let asked: Vec<Vec<(Vec<Selection>, bool)>> = stories
            .iter()
            .map(|story| {
                let mut asked: Vec<_> =
                    (0..dice.below(5)).map(|_| (vec![story.random_selection(&mut dice)], false)).collect();
                let shape = story.metadata.shape();
                let extent: Vec<u64> = shape.iter().map(|&len| 1 + dice.below(len)).collect();
                let boxes = (0..dice.below(6)).map(|_| {
                    let start: Vec<u64> =
                        shape.iter().zip(&extent).map(|(&len, &extent)| dice.below(len - extent + 1)).collect();
                    Selection::region(&start, &extent).unwrap()
                });
                let boxes: Vec<Selection> = boxes.collect();
                if !boxes.is_empty() {
                    asked.insert(dice.below(asked.len() as u64 + 1) as usize, (boxes, true));
                }
                asked
            })
            .collect();
        for device in devices() {
            let out = |(story, (selections, is_stacked)): (&Story, &(Vec<Selection>, bool))| {
                let one = selections[0].shape().into_iter().map(|extent| extent as usize);
                let shape: Vec<usize> = is_stacked.then_some(selections.len()).into_iter().chain(one).collect();
                let out = NdBuffer::empty(device, story.dtype, &shape, Order::C).unwrap();
                out.fill(&[0xAB; 4]).unwrap();
                out
            };
            let outs: Vec<Vec<NdBuffer>> = stories
                .iter()
                .zip(&asked)
                .map(|(story, asked)| asked.iter().map(|one| out((story, one))).collect())
                .collect();
            let results: Vec<Vec<ArrayResult<'_>>> = asked
                .iter()
                .zip(&outs)
                .map(|(asked, outs)| {
                    let pairs = asked.iter().zip(outs);
                    pairs
                        .map(|((selections, is_stacked), out)| match is_stacked {
                            true => ArrayResult { of: ResultOf::Stack(selections), out },
                            false => ArrayResult { of: ResultOf::One(&selections[0]), out },
                        })
                        .collect()
                })
                .collect();
            let accesses: Vec<_> = stories.iter().map(|story| story.access(device)).collect();
            let reads: Vec<ArrayRead<'_>> = stories
                .iter()
                .zip(&accesses)
                .zip(&results)
                .map(|((story, access), results)| ArrayRead { access, store: &story.store, name: "array", results })
                .collect();
            stories[0].engine.read_all(&reads, &stories[0].options).unwrap();
            for ((story, asked), outs) in stories.iter().zip(&asked).zip(&outs) {
                for ((selections, _), out) in asked.iter().zip(outs) {
                    let expected: Vec<u8> = selections.iter().flat_map(|selection| story.expected(selection)).collect();
                    assert!(
                        out.to_host_bytes(Order::C).unwrap() == expected,
                        "round {round}, {device}: {selections:?}"
                    );
                }
            }
            assert_eq!(stories[0].engine.memory(device).used_bytes(), 0, "memory is given back");
        }
    }
}

#[test]
fn ranges_lie_one_behind_the_other() {
    let mut dice = Dice(7);
    let chains = [
        json!([bytes_codec("little")]),
        json!([bytes_codec("little"), zstd_codec()]),
        sharding(&[5], json!([bytes_codec("big"), zstd_codec()]), "end"),
    ];
    for round in 0..30 {
        let len = dice.below(60);
        let codecs = dice.pick(&chains);
        let mut story = story(&[len], &[10], "int32", codecs, Arc::new(MemoryStore::new()), &mut dice);
        tuning(&mut story.options).force_device = round % 2 == 0;
        story.options.memory_limit_bytes = if round % 3 == 0 { 1 << 12 } else { 1 << 28 };
        let ranges: Vec<_> = (0..dice.below(40))
            .map(|_| {
                let start = dice.below(len + 1);
                start..start + dice.below(len - start + 1)
            })
            .collect();
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        for device in devices() {
            let out = NdBuffer::empty(device, story.dtype, &[total as usize], Order::C).unwrap();
            out.fill(&[0xAB; 4]).unwrap();
            let (access, of) = (story.access(device), ResultOf::Ranges(&ranges));
            story.engine.read_one(&access, &story.store, of, &out, &story.options).unwrap();
            let expected = ranges.iter().filter(|range| !range.is_empty()).flat_map(|range| {
                story.expected(&Selection::region(&[range.start], &[range.end - range.start]).unwrap())
            });
            assert!(out.to_host_bytes(Order::C).unwrap() == expected.collect::<Vec<u8>>(), "round {round}: {device}");
        }
    }
}

#[test]
fn a_result_of_nothing_takes_no_place_of_another() {
    let mut dice = Dice(8);
    let story = story(
        &[20],
        &[6],
        "int32",
        json!([bytes_codec("little"), zstd_codec()]),
        Arc::new(MemoryStore::new()),
        &mut dice,
    );
    let (some, rows) = (
        Selection::from_slices(&[SliceArg::Slice { start: Some(1), stop: Some(14), step: Some(3) }], &[20]).unwrap(),
        [3..3, 9..9],
    );
    for device in devices() {
        let access = story.access(device);
        let outs = [0, 5, 0].map(|len| NdBuffer::empty(device, story.dtype, &[len], Order::C).unwrap());
        let of = [ResultOf::Ranges(&rows), ResultOf::One(&some), ResultOf::Ranges(&[])];
        let results: Vec<_> = of.into_iter().zip(&outs).map(|(of, out)| ArrayResult { of, out }).collect();
        let reads = [ArrayRead { access: &access, store: &story.store, name: "a", results: &results }; 1];
        story.engine.read_all(&reads, &story.options).unwrap();
        assert_eq!(outs[1].to_host_bytes(Order::C).unwrap(), story.expected(&some), "{device}");
    }
}

#[test]
fn many_small_arrays_take_no_more_launches_than_one() {
    let mut dice = Dice(3);
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    for device in kernel_devices() {
        let launches = |count: usize, dice: &mut Dice| {
            let mut stories: Vec<Story> = (0..count)
                .map(|at| {
                    let extent = 500 + at as u64;
                    let mut story =
                        story(&[extent], &[extent], "int32", codecs.clone(), Arc::new(MemoryStore::new()), dice);
                    let value: Vec<u8> = (0..extent * 4).map(|at| (at / 256) as u8).collect();
                    story.write(Device::Cpu, &Selection::all(&[extent]), &value);
                    story
                })
                .collect();
            tuning(&mut stories[0].options).force_device = true;
            let all: Vec<Selection> = stories.iter().map(|story| Selection::all(story.metadata.shape())).collect();
            check(&stories, device, &all, "small arrays").stage(Stage::Decode).count
        };
        assert_eq!((launches(1, &mut dice), launches(50, &mut dice)), (1, 1), "{device}");
    }
}

#[test]
fn a_failure_in_one_array_fails_the_call_and_names_the_chunk() {
    let mut dice = Dice(4);
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let mut stories: Vec<Story> =
        (0..5).map(|_| story(&[20], &[5], "int32", codecs.clone(), Arc::new(MemoryStore::new()), &mut dice)).collect();
    stories[3].write(Device::Cpu, &Selection::all(&[20]), &[1; 80]);
    stories[3].store.write("a/c/2", b"no frame").unwrap();
    tuning(&mut stories[0].options).force_device = true;
    for device in devices() {
        let accesses: Vec<_> = stories.iter().map(|story| story.access(device)).collect();
        let outs: Vec<NdBuffer> =
            stories.iter().map(|story| NdBuffer::empty(device, story.dtype, &[20], Order::C).unwrap()).collect();
        let all: Vec<Selection> = stories.iter().map(|_| Selection::all(&[20])).collect();
        let error = read_all(&stories, &accesses, &all, &outs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{device}: {error:?}");
        assert!(error.trail().iter().any(|place| place.contains("a/c/2")), "{device}: {error:?}");
        assert_eq!(stories[0].engine.memory(device).used_bytes(), 0, "memory is given back");
    }
}

#[test]
fn nothing_is_read_of_no_arrays_and_results_must_fit() {
    let mut dice = Dice(5);
    let stories = [story(&[6], &[3], "int32", json!([bytes_codec("little")]), Arc::new(MemoryStore::new()), &mut dice)];
    let report = stories[0].engine.read_all(&[], &stories[0].options).unwrap();
    assert_eq!(report.stages().count(), 0);
    let accesses = [stories[0].access(Device::Cpu)];
    let out = NdBuffer::empty(Device::Cpu, stories[0].dtype, &[5], Order::C).unwrap();
    let error = read_all(&stories, &accesses, &[Selection::all(&[6])], &[out]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    // Two arrays cannot be read into the same memory.
    let out = NdBuffer::empty(Device::Cpu, stories[0].dtype, &[6], Order::C).unwrap();
    let all = Selection::all(&[6]);
    let results = [ArrayResult { of: ResultOf::One(&all), out: &out }];
    let reads =
        [(); 2].map(|()| ArrayRead { access: &accesses[0], store: &stories[0].store, name: "a", results: &results });
    assert_eq!(stories[0].engine.read_all(&reads, &stories[0].options).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
