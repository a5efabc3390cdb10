//! Bases: the facts that a fold goes on from.

use tally_proto::{CounterId, Fact, Lane};
use tally_service::mutant;

use super::rows::RowNumber;
use super::{Engine, Stop};

impl Engine {
    /// At most `most` counters whose base is to be loaded; each is named once.
    pub fn take_loads(&mut self, most: usize) -> Vec<CounterId> {
        let counter = |number| {
            let row = self.rows.get(number)?;
            Some(self.scopes.counter(row.scope, &row.subject))
        };
        self.pending.take_wanted(most).into_iter().filter_map(counter).collect()
    }

    /// The base of a counter was loaded with a quorum: the fact, or that there is none.
    ///
    /// What waited for it is counted now, unless the base holds it. A base that is newer than the
    /// checkpoint at start is written again: the quorum that showed it may not hold it for good.
    pub fn loaded(&mut self, counter: &CounterId, base: Option<(Lane, Fact)>) -> Result<(), Stop> {
        let subject = &counter.subject.subject;
        let found = self.scopes.find(counter).and_then(|scope| self.rows.find(scope, subject));
        let Some(number) = found else { return Ok(()) };
        let Some(waiting) = self.pending.take(number) else { return Ok(()) };
        if self.sets.take_reread(number) {
            return self.adopt(number, counter, base);
        }
        // What a late writer of a closed epoch still said is not part of this one.
        let base = base.filter(|(_, fact)| fact.epoch >= self.epoch || mutant!("late-epoch"));
        if let Some((lane, fact)) = &base {
            if fact.epoch > self.epoch {
                let row = format!("{counter} in partition {}", self.partition);
                return Err(Stop::OtherEpoch { row, found: fact.epoch, expected: self.epoch });
            }
            self.take_over(number, *lane, fact);
        }
        self.rows.set_loaded(number);
        if self.sets.has(number) {
            self.base_of_set(number, base.as_ref().map(|(_, fact)| fact));
        }
        for event in waiting {
            self.count(number, event);
        }
        Ok(())
    }

    /// A row goes on from a fact of the store. One that is newer than the checkpoint at start is
    /// written again: the quorum that showed it may not hold it for good.
    pub(super) fn take_over(&mut self, number: RowNumber, lane: Lane, fact: &Fact) {
        if let Some(row) = self.rows.get_mut(number) {
            row.total = fact.total;
            row.as_of = fact.as_of;
            row.generation = fact.generation;
            row.lane = lane;
        }
        if fact.as_of > self.resumed_at && !mutant!("no-write-back") {
            self.rows.set_dirty(number);
        }
    }
}
