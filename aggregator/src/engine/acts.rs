//! The fold of acts on sets: an actor comes in or goes out, once, however often it is said.

use tally_proto::{CounterId, Event, Fact, Kind, Lane, LedgerEntry, Members};
use tally_service::mutant;

use super::fold::Place;
use super::rows::{Row, RowNumber};
use super::set::{Act, Deed, Step};
use super::{Engine, Stop};

impl Engine {
    /// An act of a set kind takes its turn.
    pub(super) fn act(&mut self, place: Place<'_>, event: &Event<'_>, actor: &str, comes_in: bool) {
        let (namespace, subject) = (event.namespace, event.subject);
        let deed = if comes_in { Deed::ComesIn } else { Deed::GoesOut };
        let act = Act { offset: place.record.offset, actor: actor.into(), deed };
        self.queue_act(namespace, event.kind, subject, act);
    }

    pub(super) fn queue_act(&mut self, namespace: &str, kind: &Kind, subject: &str, act: Act) {
        let scope = self.scopes.number(namespace, &kind.name);
        let number = self.rows.find(scope, subject).unwrap_or_else(|| {
            self.scopes.hold(scope);
            let number = self.rows.add_loading(scope, subject);
            self.sets.add(number, kind.most_inline);
            self.pending.want(number);
            number
        });
        self.sets.queue(number, act);
        if self.touched.last() != Some(&number) {
            self.touched.push(number);
        }
    }

    /// The record has ended: its acts may be applied.
    pub(super) fn settle(&mut self) {
        for number in std::mem::take(&mut self.touched) {
            self.advance(number);
        }
    }

    /// Applies what waits on a set, record by record, as far as bases and entries are here.
    fn advance(&mut self, number: RowNumber) {
        while let Some(front) = self.sets.front(number) {
            let Some(row) = self.rows.get(number).filter(|row| !row.is_loading()) else { break };
            let has = row.as_of.covers(front.next()) && !mutant!("count-what-the-base-holds");
            if self.reset_set(number, has) {
                continue;
            }
            match self.sets.step(number, self.epoch, has) {
                None | Some(Step::Waits) => break,
                Some(Step::Reread) => {
                    if self.sets.begin_reread(number) {
                        self.pending.want(number);
                    }
                    break;
                }
                Some(Step::Applied { change, mut changed, acts }) => {
                    let counted = if has { 0 } else { acts as u64 };
                    self.folded_events = self.folded_events.saturating_add(counted);
                    if mutant!("dirty-by-total") {
                        changed = change != 0;
                    }
                    if let Some(row) = self.rows.get_mut(number) {
                        row.total = row.total.saturating_add(change);
                    }
                    if changed {
                        self.rows.set_dirty(number);
                    }
                }
            }
        }
        self.hold(number);
    }

    /// Keeps the row in memory for as long as its set is busy.
    pub(super) fn hold(&mut self, number: RowNumber) {
        if self.sets.has(number) {
            self.rows.set_held(number, self.sets.is_busy(number));
        }
    }

    /// At most about `most` entries of the ledger that are to be loaded, by counter.
    pub fn take_entry_loads(&mut self, most: usize) -> Vec<(CounterId, Vec<Box<str>>)> {
        let mut wanted = self.sets.take_wanted(most);
        wanted.sort_unstable();
        let mut loads = Vec::new();
        for of_one in wanted.chunk_by(|a, b| a.0 == b.0) {
            let Some((number, _)) = of_one.first() else { continue };
            let Some(row) = self.rows.get(*number) else { continue };
            let actors = of_one.iter().map(|(_, actor)| actor.clone()).collect();
            loads.push((self.scopes.counter(row.scope, &row.subject), actors));
        }
        loads
    }

    /// What the ledger says of actors was loaded with a quorum: the entry, or that there is none.
    pub fn entries_loaded(
        &mut self,
        counter: &CounterId,
        entries: impl IntoIterator<Item = (Box<str>, Option<LedgerEntry>)>,
    ) -> Result<(), Stop> {
        let subject = &counter.subject.subject;
        let found = self.scopes.find(counter).and_then(|scope| self.rows.find(scope, subject));
        let Some(number) = found else { return Ok(()) };
        for (actor, entry) in entries {
            if let Some(entry) = entry.filter(|entry| entry.epoch > self.epoch) {
                let row = format!("{actor} of {counter}");
                return Err(Stop::OtherEpoch { row, found: entry.epoch, expected: self.epoch });
            }
            self.sets.loaded(number, &actor, entry, self.epoch, self.resumed_at);
        }
        self.advance(number);
        Ok(())
    }

    /// The set's base is here.
    pub(super) fn base_of_set(&mut self, number: RowNumber, base: Option<&Fact>) {
        if let Some(fact) = base {
            self.sets.set_base(number, &fact.members);
        }
        self.advance(number);
    }

    /// The fact was loaded again, since the ledger was newer than what we know: facts are written
    /// before the ledger, so the store has a newer one, which is taken over.
    pub(super) fn adopt(
        &mut self,
        number: RowNumber,
        counter: &CounterId,
        base: Option<(Lane, Fact)>,
    ) -> Result<(), Stop> {
        let known = self.rows.get(number).map_or(self.next, |row: &Row| row.as_of);
        let known = known.max(self.sets.front(number).unwrap_or_default());
        let newer = base.filter(|(_, fact)| fact.epoch == self.epoch && fact.as_of > known);
        let Some((lane, fact)) = newer else {
            let row = format!("{counter} in partition {}", self.partition);
            return Err(Stop::LedgerAhead { row });
        };
        self.take_over(number, lane, &fact);
        self.sets.adopted(number);
        if let Members::Spilled(since) = fact.members {
            self.sets.move_on(number, since);
        }
        self.advance(number);
        Ok(())
    }
}
