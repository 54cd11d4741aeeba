//! What threads that write batches share: rows that were taken, and are not stored yet.

use std::sync::Mutex;

use super::levels::{Levels, Sink};
use super::placing::{Placing, Put, Written, lock};
use super::stored::Arrays;
use super::tasks::{Task, Work};
use crate::error::Result;

/// Where a writer puts rows, and for each array its coarser levels.
pub(super) struct Gathered {
    pub(super) placing: Placing,
    pub(super) levels: Vec<Option<Mutex<Levels>>>,
}

impl Gathered {
    /// Writes a batch. `arrays` are those of its images, long enough for all of its rows. `to` says what was written, also
    /// after a failure.
    pub(super) fn write(&self, batch: &[Task], arrays: &Arrays, to: &mut Written) -> Result<()> {
        self.placing.lengthen(arrays);
        let mut puts = Vec::new();
        for task in batch {
            if let Work::Rows(given) = &task.work {
                given.ready.synchronize()?;
                let (rows, value) = (given.rows.clone(), given.value.clone());
                puts.push(Put { array: task.array, span: task.span.clone(), rows, value });
            }
        }
        self.placing.put(arrays, &puts, to)?;
        for task in batch {
            let mut levels = self.levels[task.array].as_ref().map(lock);
            if levels.is_none() && matches!(task.work, Work::Rows(_)) {
                continue;
            }
            let arrays = self.placing.arrays_of(task.array);
            let mut sink = Sink { placing: &self.placing, arrays: &arrays, written: &mut *to };
            if let Some(levels) = &mut levels {
                match &task.work {
                    Work::Rows(given) => levels.pass(&mut sink, &task.span, &given.rows, &given.value)?,
                    Work::Remake(finer) => levels.remake(&mut sink, *finer, &task.span)?,
                    Work::Settle => levels.settle(&mut sink)?,
                    Work::Trim => levels.trim(&mut sink)?,
                }
            }
            if matches!(task.work, Work::Settle | Work::Trim) {
                self.placing.settle(&arrays, to)?;
            }
        }
        Ok(())
    }

    /// Stores the shards that are whole. Meanwhile no rows come to those of coarser levels: they would miss the shard.
    pub(super) fn finish(&self, to: &mut Written) -> Result<()> {
        while let Some((number, shard)) = to.whole.pop() {
            let image = self.placing.image_of(number);
            let _levels = self.levels[image].as_ref().filter(|_| image != number).map(lock);
            self.placing.finish(number, shard, to)?;
        }
        Ok(())
    }
}
