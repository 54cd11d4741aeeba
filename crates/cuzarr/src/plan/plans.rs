//! The read plans of one call that reads several arrays, one plan for each array. Arrays whose chunks are decoded in
//! the same way form a group. Chunks of a group share batches, so many small arrays take no more launches than one
//! large array.

use std::sync::Arc;

use super::read::{Entries, Filled, Filling, IndexPlace, IndexRead, Plan, Room, Step};
use crate::error::Result;

/// Maximum number of shard indexes that are requested at once, for all arrays of a call.
const MOST_INDEXES: usize = 4096;

/// The read plans of all arrays of one call, sorted by groups of arrays whose chunks can share batches.
pub struct Plans {
    plans: Vec<(usize, Plan)>,
    /// For each array of the call, the index of its read plan in `plans`.
    places: Vec<usize>,
    /// Index in `plans` of the first plan whose chunks have not all been put into batches.
    at: usize,
}

impl From<Plan> for Plans {
    fn from(plan: Plan) -> Plans {
        Plans::new(vec![(0, 0, plan)])
    }
}

impl Plans {
    /// Collects the read plans of one call, one for each array. Item `n` is for array `n`: its group, the number of its
    /// first result, and its plan.
    pub fn new(plans: Vec<(usize, usize, Plan)>) -> Plans {
        let numbered = plans.into_iter().enumerate();
        let numbered = numbered.map(|(array, (group, out, plan))| (group, array, plan.numbered(array, out)));
        let mut plans: Vec<(usize, usize, Plan)> = numbered.collect();
        plans.sort_by_key(|(group, ..)| *group);
        let mut places = vec![0; plans.len()];
        plans.iter().enumerate().for_each(|(place, (_, array, _))| places[*array] = place);
        Plans { plans: plans.into_iter().map(|(group, _, plan)| (group, plan)).collect(), places, at: 0 }
    }

    /// Returns the plan that reads the array with this number in the call.
    pub(crate) fn of(&self, array: usize) -> &Plan {
        &self.plans[self.places[array]].1
    }

    /// Passes a shard index to the plan that asked for it; `None` if the shard does not exist.
    pub fn learn(&mut self, array: usize, place: IndexPlace, entries: Option<Arc<dyn Entries>>) {
        self.plans[self.places[array]].1.learn(place, entries);
    }

    /// Returns the next step of the call: a batch to read, or indexes to fetch first. A batch has chunks of one group,
    /// within the limits that `room` returns for the group.
    ///
    /// # Errors
    /// `ChunkCorrupt` when a shard's index contradicts its array's metadata.
    pub fn next(&mut self, room: &dyn Fn(usize) -> Room) -> Result<Step> {
        let Some((group, _)) = self.plans.get(self.at) else { return Ok(Step::Done) };
        let group = *group;
        let mut filling = Filling::new(room(group));
        loop {
            let is_last = self.plans.get(self.at + 1).is_none_or(|(of, _)| *of != group);
            let (_, plan) = &mut self.plans[self.at];
            let filled = plan.fill_up(&mut filling)?;
            match filled {
                Filled::Unknown(level) if filling.is_empty() => return self.unknown(level).map(Step::Indexes),
                Filled::Done if !is_last => self.at += 1,
                Filled::Done if filling.is_empty() => {
                    self.at += 1;
                    return self.next(room);
                }
                filled => {
                    let step = plan.hand_out(filling, group);
                    self.at += usize::from(matches!(filled, Filled::Done));
                    return Ok(step);
                }
            }
        }
    }

    /// Collects the shard indexes that the current plan needs, and those that later plans will need first, so that one
    /// round serves many arrays.
    fn unknown(&mut self, level: usize) -> Result<Vec<IndexRead>> {
        let (_, current) = &self.plans[self.at];
        let mut wanted = current.wanted_indexes(level)?;
        for (_, later) in &mut self.plans[self.at + 1..] {
            if wanted.len() >= MOST_INDEXES {
                break;
            }
            wanted.extend(later.first_indexes()?);
        }
        Ok(wanted)
    }
}
