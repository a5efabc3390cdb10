//! The flush: one snapshot of dirty facts, and the checkpoint that may follow it.

use std::collections::BTreeSet;

use tally_proto::{AsOf, Checkpoint, Fact, LedgerEntry, Reset};
use tally_service::mutant;
use tally_store::{DeadLetter, FactRow, LedgerRow};

use super::rows::RowNumber;
use super::{Engine, Mark};

/// What is to be written, one part after the other, each when the former is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// Who was in, of sets that have spilled: before the facts, which do not list them any more.
    pub spills: Vec<LedgerRow>,
    /// The facts of every row that changed.
    pub rows: Vec<FactRow>,
    /// Entries that changed: after the facts, so that who finds one finds a fact that is as new.
    pub entries: Vec<LedgerRow>,
    /// What could not be counted.
    pub dead_letters: Vec<DeadLetter>,
    /// Resets that every other partition must have before the checkpoint passes them here.
    pub resets: Vec<Reset>,
    /// Where a fold may resume after it.
    pub checkpoint: Option<Checkpoint>,
}

/// What is being written.
#[derive(Debug)]
pub(super) struct Flying {
    rows: Vec<RowNumber>,
    lists: Vec<RowNumber>,
    entries: Vec<(RowNumber, Box<str>)>,
    dead_letters: Vec<DeadLetter>,
    resets: Vec<Reset>,
    checkpoint: Option<Checkpoint>,
}

impl Engine {
    /// Takes a snapshot to be written; `None` if nothing changed, or one is being written.
    pub fn begin_flush(&mut self) -> Option<Flush> {
        self.sets.look_again();
        if !mutant!("full-stays-full") {
            self.make_room();
        }
        if self.flying.is_some() {
            return None;
        }
        let checkpoint = self.next_checkpoint();
        let is_clean = self.rows.dirty() == 0 && self.sets.dirty() == 0;
        let is_all_told = self.dead_letters.is_empty() && self.carry.is_empty();
        if is_clean && is_all_told && checkpoint.is_none() {
            return None;
        }
        let numbers = self.rows.take_off();
        let rows = numbers.iter().filter_map(|number| self.fact_row(*number)).collect();
        let (lists, spills) = self.spills();
        let (flying, entries) = self.entries();
        let dead_letters = std::mem::take(&mut self.dead_letters);
        let resets = std::mem::take(&mut self.carry);
        self.flying = Some(Flying {
            rows: numbers,
            lists,
            entries: flying,
            dead_letters: dead_letters.clone(),
            resets: resets.clone(),
            checkpoint,
        });
        Some(Flush { spills, rows, entries, dead_letters, resets, checkpoint })
    }

    /// The lists of sets that have spilled, as of their spills.
    fn spills(&mut self) -> (Vec<RowNumber>, Vec<LedgerRow>) {
        let (mut lists, mut rows) = (Vec::new(), Vec::new());
        for (number, since, actors) in self.sets.lists() {
            let Some(row) = self.rows.get(number) else { continue };
            let counter = self.scopes.counter(row.scope, &row.subject);
            let entry = LedgerEntry { epoch: since.epoch(), as_of: since.as_of(), is_in: true };
            for actor in actors.iter().cloned() {
                rows.push(LedgerRow { counter: counter.clone(), actor, entry });
            }
            lists.push(number);
        }
        if mutant!("forget-spills") {
            lists.iter().for_each(|number| self.sets.adopted(*number));
        }
        (lists, rows)
    }

    /// Entries that changed.
    fn entries(&mut self) -> (Vec<(RowNumber, Box<str>)>, Vec<LedgerRow>) {
        let (mut flying, mut rows) = (Vec::new(), Vec::new());
        for (number, actor, mut entry) in self.sets.take_off(self.epoch) {
            let Some(row) = self.rows.get(number) else { continue };
            let counter = self.scopes.counter(row.scope, &row.subject);
            if mutant!("entry-as-of-flush") {
                entry.as_of = self.next;
            }
            rows.push(LedgerRow { counter, actor: actor.clone(), entry });
            flying.push((number, actor));
        }
        (flying, rows)
    }

    /// The flush was written as a whole, checkpoint included, or has to be repeated.
    pub fn flushed(&mut self, written: bool) {
        let Some(flying) = self.flying.take() else { return };
        let written = written || mutant!("failed-is-written");
        self.rows.land(&flying.rows, written);
        let touched: BTreeSet<RowNumber> =
            flying.lists.iter().copied().chain(flying.entries.iter().map(|(n, _)| *n)).collect();
        self.sets.land(&flying.lists, flying.entries, written);
        touched.into_iter().for_each(|number| self.hold(number));
        if written {
            if let Some(checkpoint) = flying.checkpoint {
                self.durable = checkpoint.as_of;
                self.needed = checkpoint.window_from;
                self.durable_append_time_ms = checkpoint.last.map(|last| last.append_time_ms);
            }
            let letter_bytes = |l: &DeadLetter| l.value.len().saturating_add(l.key.len());
            self.dead_letter_bytes =
                self.dead_letters.iter().map(letter_bytes).fold(0, usize::saturating_add);
        } else {
            let newer = std::mem::replace(&mut self.carry, flying.resets);
            self.carry.extend(newer);
            if !mutant!("dead-letters-once") {
                let newer = std::mem::replace(&mut self.dead_letters, flying.dead_letters);
                self.dead_letters.extend(newer);
            }
        }
    }

    /// What the row says as of now: all below `next` is applied to it, unless its base is newer.
    fn fact_row(&self, number: RowNumber) -> Option<FactRow> {
        let row = self.rows.get(number)?;
        Some(FactRow {
            counter: self.scopes.counter(row.scope, &row.subject),
            lane: row.lane,
            partition: self.partition,
            fact: Fact {
                epoch: self.epoch,
                as_of: row.as_of.max(self.sets.front(number).unwrap_or(self.next)),
                generation: row.generation,
                total: row.total.saturating_add(i64::from(mutant!("canary"))),
                members: self.sets.members(number),
            },
        })
    }

    /// The newest place that every row in memory has passed; none that is durable already.
    fn next_checkpoint(&mut self) -> Option<Checkpoint> {
        let waits = [self.pending.oldest(), self.sets.oldest()];
        let mut limit = waits.into_iter().flatten().min().unwrap_or(AsOf(u64::MAX));
        if mutant!("checkpoint-passes-loads") {
            limit = AsOf(u64::MAX);
        }
        let reached = |mark: &Mark| mark.last.offset.as_of() <= limit;
        let passed = self.marks.partition_point(reached);
        let Mark { last, window_from } =
            passed.checked_sub(1).and_then(|at| self.marks.get(at)).copied()?;
        self.marks.drain(..passed.saturating_sub(1)); // it stays, in case this flush fails
        let (epoch, as_of, last) = (self.epoch, last.offset.as_of(), Some(last));
        (as_of > self.durable).then_some(Checkpoint { epoch, as_of, last, window_from })
    }
}
