//! Writers that make the coarser levels of an image on the way: the levels beside those made of the stored array.

mod model;
mod mortal;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::node::{Array, ArrayOptions, Writer, WriterArray, WriterOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr_device::downsample::{Downsampling, downsample, downsampled_shape};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata, sharding, zstd_codec};
use mortal::Mortal;
use serde_json::{Value, json};

/// An image whose rows are along `axis`, with `factors` from each level to the next.
struct Image {
    store: Arc<dyn Store>,
    axis: usize,
    device: Device,
    factors: Vec<Vec<u64>>,
}

impl Image {
    /// Creates levels without rows, each with chunks of `heights` rows.
    fn new(
        store: Arc<dyn Store>,
        (axis, device): (usize, Device),
        width: u64,
        factors: &[Vec<u64>],
        chains: &[(u64, Value)],
    ) -> Image {
        let mut shape = [width, width];
        shape[axis] = 0;
        for (level, (height, codecs)) in chains.iter().enumerate() {
            let mut chunk = [2, 2];
            chunk[axis] = *height;
            let new = metadata(&shape, &chunk, "int32", json!(-1), codecs.clone());
            Array::create(Arc::clone(&store), &level.to_string(), new, false, ArrayOptions::default()).unwrap();
            if let Some(factors) = factors.get(level) {
                shape = [0, 1].map(|dimension| shape[dimension].div_ceil(factors[dimension]));
            }
        }
        Image { store, axis, device, factors: factors.to_vec() }
    }

    fn array(&self, level: usize) -> Array {
        let options = ArrayOptions::default().with_device(self.device);
        Array::open(Arc::clone(&self.store), &level.to_string(), options).unwrap()
    }

    fn writer(&self, options: &WriterOptions) -> cuzarr::Result<Writer> {
        let coarser = self.factors.iter().enumerate().map(|(at, factors)| (self.array(at + 1), factors.clone()));
        let array = WriterArray::new(self.array(0), self.axis).with_levels(coarser.collect(), Downsampling::Mean);
        Writer::new(vec![array], options)
    }

    fn rows(&self, count: u64, tag: i32) -> NdBuffer {
        let mut shape = self.array(0).shape().iter().map(|&extent| extent as usize).collect::<Vec<_>>();
        shape[self.axis] = count as usize;
        let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).map(|at| at * 37 % 101 + tag).collect();
        NdBuffer::from_slice(self.device, &values, &shape).unwrap()
    }

    fn elements(&self, level: usize) -> NdBuffer {
        let array = self.array(level);
        array.read_buffer(&Selection::all(array.shape())).unwrap()
    }

    /// Checks that each level is what the level before gives.
    fn check(&self, what: &str) {
        for (level, factors) in self.factors.iter().enumerate() {
            let factors: Vec<usize> = factors.iter().map(|&factor| factor as usize).collect();
            let (finer, coarser) = (self.elements(level), self.elements(level + 1));
            assert_eq!(coarser.shape(), downsampled_shape(finer.shape(), &factors), "{what}, level {}", level + 1);
            let expected = downsample(&finer, &factors, Downsampling::Mean).unwrap();
            let bytes = |of: &NdBuffer| of.to_host_bytes(Order::C).unwrap();
            assert!(bytes(&coarser) == bytes(&expected), "{what}, level {}: {coarser:?} {expected:?}", level + 1);
        }
    }
}

fn random(dice: &mut Dice, store: Arc<dyn Store>, axis: usize, device: Device) -> Image {
    let levels = 1 + dice.below(3) as usize;
    let factor = |dice: &mut Dice| vec![1 + dice.below(3), 1 + dice.below(3)];
    let factors: Vec<_> = (0..levels).map(|_| factor(dice)).collect();
    let chain = |dice: &mut Dice| {
        let height = 1 + dice.below(6);
        let inner = (1..=height).rev().find(|inner| height.is_multiple_of(*inner) && *inner < height).unwrap_or(1);
        let mut chunk = [1, 1];
        chunk[axis] = inner;
        let codecs = match dice.below(3) {
            0 => json!([bytes_codec("little")]),
            1 => json!([bytes_codec("little"), zstd_codec()]),
            _ => sharding(&chunk, json!([bytes_codec("little")]), "end"),
        };
        (height, codecs)
    };
    let chains: Vec<_> = (0..=levels).map(|_| chain(dice)).collect();
    Image::new(store, (axis, device), 5, &factors, &chains)
}

#[test]
fn levels_follow_rows_in_any_order() {
    let mut dice = Dice(17);
    for device in devices() {
        for round in 0..60 {
            let axis = dice.below(2) as usize;
            let image = random(&mut dice, Arc::new(MemoryStore::new()), axis, device);
            let what = format!("{device}, round {round}");
            let options = WriterOptions { slots: 1 + dice.below(3) as usize, ..WriterOptions::default() };
            for part in 0..2 {
                let mut writer = image.writer(&options).unwrap();
                for step in 0..dice.below(16) {
                    let (count, tag) = (dice.below(8), (100 * step + part) as i32);
                    let (rows, end) = (image.rows(count, tag), writer.end());
                    let given = match dice.below(6) {
                        0 => writer.write(0, end.saturating_sub(dice.below(6)), &rows, None),
                        1 => writer.write(0, end + dice.below(3), &rows, None),
                        2 => writer.add(&[(0, rows, None)], None, true),
                        _ => writer.append(0, &rows, None),
                    };
                    // There may be no memory for rows that are far ahead.
                    given.unwrap_or_else(|error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"));
                    if dice.chance(4) {
                        writer.flush().unwrap();
                        image.check(&format!("{what}, part {part}, step {step}"));
                    }
                }
                // Rows that did not come would leave levels without them.
                let (position, end) = (writer.position(), writer.end());
                for row in position..end {
                    writer.write(0, row, &image.rows(1, row as i32), None).ok();
                }
                writer.close().unwrap();
                image.check(&format!("{what}, part {part}, at the end"));
            }
        }
    }
}

#[test]
fn levels_of_a_killed_program_are_made_again() {
    let (mut dice, mut kills) = (Dice(23), 0);
    for round in 0..12 {
        let axis = dice.below(2) as usize;
        let steps: Vec<(u64, bool)> = (0..2 + dice.below(5)).map(|_| (dice.below(7), dice.chance(4))).collect();
        let start: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let image = random(&mut dice, Arc::clone(&start), axis, Device::Cpu);
        for most in 0.. {
            let mortal = Mortal::new(&mortal::values(&*start), most);
            let dying = Image { store: mortal.clone(), factors: image.factors.clone(), ..image };
            let mut writer = dying.writer(&WriterOptions::default()).unwrap();
            let mut ended = Ok(());
            for (tag, (count, flushes)) in steps.iter().enumerate() {
                ended = ended.and_then(|()| writer.append(0, &dying.rows(*count, tag as i32), None));
                ended = ended.and_then(|()| if *flushes { writer.flush() } else { Ok(()) });
            }
            let ended = ended.and_then(|()| writer.close());
            drop(writer);
            let dead: Arc<dyn Store> = Arc::new(MemoryStore::new());
            mortal::values(&mortal.values).iter().for_each(|(key, value)| dead.write(key, value).unwrap());
            let found = Image { store: dead, factors: image.factors.clone(), ..image };
            let what = format!("round {round}, {most} changes, ended {ended:?}");
            let rows = found.array(0).shape()[axis];
            let options = WriterOptions { resume: true, ..WriterOptions::default() };
            if dice.chance(2) {
                let mut writer = found.writer(&options).unwrap();
                assert_eq!(writer.position(), rows, "{what}");
                writer.close().unwrap();
                found.check(&format!("{what}, opened and closed"));
            }
            let mut writer = found.writer(&options).unwrap();
            writer.append(0, &found.rows(1 + dice.below(5), 7), None).unwrap();
            writer.close().unwrap();
            found.check(&what);
            kills += 1;
            if ended.is_ok() {
                break;
            }
        }
    }
    assert!(kills > 100, "{kills}");
}

#[test]
fn levels_that_do_not_fit_are_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let chain = (2, json!([bytes_codec("little")]));
    let image = Image::new(store, (0, Device::Cpu), 8, &[vec![2, 2]], &[chain.clone(), chain]);
    let refused = |levels: Vec<(Array, Vec<u64>)>, method, options: &WriterOptions| {
        let array = WriterArray::new(image.array(0), 0).with_levels(levels, method);
        Writer::new(vec![array], options).err().unwrap()
    };
    let (mean, options) = (Downsampling::Mean, WriterOptions::default());
    let error = refused(vec![(image.array(1), vec![2, 3])], mean, &options);
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert!(error.to_string().contains("array '/1'") && error.hint().unwrap().contains("[0, 3]"), "{error}");
    let error = refused(vec![(image.array(1), vec![2])], mean, &options);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let error = refused(vec![(image.array(1), vec![0, 2])], mean, &options);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let error = refused(vec![(image.array(1), vec![2, 2])], Downsampling::Gaussian, &options);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let error = refused(vec![(image.array(0), vec![1, 1])], mean, &options);
    assert!(error.to_string().contains("given twice"), "{error}");
    let region = WriterOptions { region: Some((vec![0, 0], vec![0, 8])), ..WriterOptions::default() };
    let error = refused(vec![(image.array(1), vec![2, 2])], mean, &region);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // A level that is longer than it can be is shortened only with `resume`.
    let mut level = image.array(1);
    level.resize(vec![3, 4]).unwrap();
    let error = image.writer(&options).err().unwrap();
    assert!(error.to_string().contains("3 rows along dimension 0, and 0 belong to 0 rows"), "{error}");
    let mut writer = image.writer(&WriterOptions { resume: true, ..options }).unwrap();
    writer.append(0, &image.rows(3, 1), None).unwrap();
    writer.close().unwrap();
    image.check("shortened");
    assert_eq!(image.array(1).shape(), [2, 4]);
}
