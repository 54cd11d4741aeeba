//! The plans of one call, each of another array. Arrays whose chunks are decoded in the same way are a group, and chunks of a group
//! share batches, so that many small arrays take no more launches than a large one.

use std::sync::Arc;

use super::read::{Entries, Filled, Filling, IndexPlace, IndexRead, Plan, Room, Step};
use crate::error::Result;

/// Most indexes that are asked for at once, for all arrays of a call.
const MOST_INDEXES: usize = 4096;

/// The plans of one call, in the order of their groups.
pub struct Plans {
    plans: Vec<(usize, Plan)>,
    /// The place of each array's plan.
    places: Vec<usize>,
    /// The first plan that is not complete.
    at: usize,
}

impl From<Plan> for Plans {
    fn from(plan: Plan) -> Plans {
        Plans::new(vec![(0, 0, plan)])
    }
}

impl Plans {
    /// The plans of arrays in the order of their numbers, each with the number of its group and that of its first result.
    pub fn new(plans: Vec<(usize, usize, Plan)>) -> Plans {
        let numbered = plans.into_iter().enumerate();
        let numbered = numbered.map(|(array, (group, out, plan))| (group, array, plan.numbered(array, out)));
        let mut plans: Vec<(usize, usize, Plan)> = numbered.collect();
        plans.sort_by_key(|(group, ..)| *group);
        let mut places = vec![0; plans.len()];
        plans.iter().enumerate().for_each(|(place, (_, array, _))| places[*array] = place);
        Plans { plans: plans.into_iter().map(|(group, _, plan)| (group, plan)).collect(), places, at: 0 }
    }

    /// The plan of an array.
    pub(crate) fn of(&self, array: usize) -> &Plan {
        &self.plans[self.places[array]].1
    }

    /// Gives the plan of an array an index that it asked for; `None` when the shard does not exist.
    pub fn learn(&mut self, array: usize, place: IndexPlace, entries: Option<Arc<dyn Entries>>) {
        self.plans[self.places[array]].1.learn(place, entries);
    }

    /// The next step. A batch is of one group, within the limits that `room` gives for it.
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

    /// The indexes that the current plan needs, and those that later ones will, so that one round serves many arrays.
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
