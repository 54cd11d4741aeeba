//! Random arrays, written and read in random parts, against a naive model in memory, on every device that is here.

mod model;

use std::sync::Arc;

use cuzarr::internal::run::{Tuning, tuning};
use cuzarr::plan::Selection;
use cuzarr::run::Options;
use cuzarr::store::MemoryStore;
use cuzarr_device::Device;
use model::{Dice, Story, devices, random_metadata};

fn random_options(dice: &mut Dice) -> Options {
    let mut options = Options::default()
        .with_threads(1 + dice.below(3) as usize)
        .with_memory_limit_bytes(dice.pick(&[1 << 16, 1 << 20, 1 << 30]))
        .with_coalesce_gap_bytes(dice.below(64))
        .with_coalesce_max_bytes(1 + dice.below(1000))
        .with_variable_limit_bytes(1 << 20)
        .with_read_missing_chunks(true)
        .with_write_empty_chunks(dice.chance(4))
        .with_strict(false)
        .with_trace(dice.chance(2));
    *tuning(&mut options) = Tuning {
        slab_bytes: dice.pick(&[1 << 10, 1 << 12, 1 << 16]),
        decode_batch_bytes: dice.pick(&[1, 1 << 13, 1 << 26]),
        force_device: false,
    };
    options
}

fn tell(seed: u64, devices: &[Device]) {
    let mut dice = Dice(seed);
    let mut story = Story::new(random_metadata(&mut dice), Arc::new(MemoryStore::new()));
    let context = format!("seed {seed}: {}", String::from_utf8_lossy(&story.metadata.to_json()));
    for _ in 0..3 {
        story.options = random_options(&mut dice);
        let writer = dice.pick(devices);
        let selection = match dice.below(3) {
            0 => Selection::all(story.metadata.shape()),
            _ => story.random_selection(&mut dice),
        };
        let value = story.random_value(&mut dice, &selection);
        story.write(writer, &selection, &value);
        for &device in devices {
            story.check(device, &Selection::all(story.metadata.shape()), &context);
            story.check(device, &story.random_selection(&mut dice), &context);
        }
    }
}

#[test]
fn what_was_written_is_read_on_the_cpu() {
    (0..600).for_each(|seed| tell(seed, &[Device::Cpu]));
}

#[test]
fn what_was_written_is_read_on_every_device() {
    let devices = devices();
    (1000..1060).for_each(|seed| tell(seed, &devices));
}
