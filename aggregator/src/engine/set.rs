//! One set: who is in, of a counter that counts actors. While they are few the fact lists them; past
//! the kind's limit each has an entry in the ledger, of which those in use are in memory.
//!
//! Invariant: acts are applied in the order of the log, and those of one record all at once, so a
//! set always stands at the edge of a record.

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;
use tally_proto::{AsOf, Epoch, LedgerEntry, Members, Offset, Stamp};
use tally_service::mutant;

/// One act that was not applied yet.
#[derive(Debug, Clone)]
pub(super) struct Act {
    pub(super) offset: Offset,
    /// Nobody, for a reset.
    pub(super) actor: Box<str>,
    pub(super) deed: Deed,
}

/// What an act does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    ComesIn,
    GoesOut,
    /// The set begins anew, in this generation.
    Reset(u64),
}

/// Who is in, of one counter in this partition.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// Who is in, while the fact lists them.
    members: BTreeSet<Box<str>>,
    most_inline: usize,
    /// Since when the ledger holds who is in: for ever.
    pub(super) spilled: Option<Stamp>,
    /// Entries of the ledger.
    pub(super) entries: HashMap<Box<str>, Entry, FixedState>,
    /// Who was in when it spilled, until a spilled fact is acknowledged or taken over.
    pub(super) list: Vec<Box<str>>,
    /// Acts that wait for their turn.
    pub(super) queue: VecDeque<Act>,
    /// Whose entries have become dirty.
    pub(super) changed: Vec<Box<str>>,
    /// Its fact is asked for again: the ledger is newer.
    pub(super) rereading: bool,
    /// Entries that are dirty or being written.
    pub(super) unsettled: usize,
}

/// What is known of one actor.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) is_in: bool,
    /// One past the actor's last change; zero where an earlier epoch says so.
    pub(super) as_of: AsOf,
    pub(super) flags: u8,
    /// Acts in the queue that need it.
    pub(super) pins: u32,
}

pub(super) const LOADING: u8 = 1;
pub(super) const DIRTY: u8 = 2;
pub(super) const FLYING: u8 = 4;

/// What became of the next record's acts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Entries are not here yet.
    Waits,
    /// The ledger is newer than the fact: the fact must be loaded again.
    Reread,
    /// They are applied: by how much the total changes, whether anything did, and how many.
    Applied { change: i64, changed: bool, acts: usize },
}

impl Set {
    pub(super) fn new(most_inline: usize) -> Self {
        Set { most_inline, ..Set::default() }
    }

    /// Whether it must stay in memory.
    pub(super) fn is_busy(&self) -> bool {
        let unsettled = self.unsettled > 0 && !mutant!("evict-dirty-entries");
        !self.queue.is_empty() || !self.list.is_empty() || self.rereading || unsettled
    }

    /// Where it stands who is in.
    pub(super) fn members(&self) -> Members {
        match self.spilled {
            None => Members::Inline(self.members.iter().cloned().collect()),
            Some(since) => Members::Spilled(since),
        }
    }

    /// What the base says; returns whose entries are to be loaded.
    pub(super) fn set_base(&mut self, members: &Members) -> Vec<Box<str>> {
        match members {
            Members::None => Vec::new(),
            Members::Inline(members) => {
                self.members = members.iter().cloned().collect();
                Vec::new()
            }
            Members::Spilled(since) => {
                self.spilled = Some(*since);
                self.pin_queue()
            }
        }
    }

    /// An act takes its turn; returns its actor if the entry is to be loaded.
    pub(super) fn push(&mut self, act: Act) -> Option<Box<str>> {
        let is_reset = matches!(act.deed, Deed::Reset(_));
        let wanted = if self.spilled.is_some() && !is_reset { self.pin(&act.actor) } else { None };
        self.queue.push_back(act);
        wanted
    }

    /// The set has spilled: the acts that wait need entries.
    pub(super) fn pin_queue(&mut self) -> Vec<Box<str>> {
        let acts = self.queue.iter().filter(|act| !matches!(act.deed, Deed::Reset(_)));
        let actors: Vec<Box<str>> = acts.map(|act| act.actor.clone()).collect();
        actors.iter().filter_map(|actor| self.pin(actor)).collect()
    }

    fn pin(&mut self, actor: &str) -> Option<Box<str>> {
        if let Some(entry) = self.entries.get_mut(actor) {
            entry.pins = entry.pins.saturating_add(1);
            return None;
        }
        self.entries.insert(actor.into(), Entry { flags: LOADING, pins: 1, ..Entry::default() });
        Some(actor.into())
    }

    /// What the ledger says of an actor, or that it says nothing; returns whether the entry must be
    /// written again, since the quorum that showed it may not hold it for good.
    pub(super) fn entry_loaded(
        &mut self,
        actor: &str,
        found: Option<LedgerEntry>,
        epoch: Epoch,
        resumed_at: AsOf,
    ) -> bool {
        let Some(since) = self.spilled else { return false };
        let entry = self.entries.get_mut(actor).filter(|entry| entry.flags & LOADING != 0);
        let Some(entry) = entry else { return false };
        entry.flags &= !LOADING;
        let is_valid = |found: &LedgerEntry| mutant!("spill-without-name") || found.is_since(since);
        let Some(found) = found.filter(is_valid) else { return false };
        entry.is_in = found.is_in;
        entry.as_of = if found.epoch == epoch { found.as_of } else { AsOf::ZERO };
        let again = entry.as_of > resumed_at && !mutant!("no-entry-write-back");
        if again {
            entry.flags |= DIRTY;
            self.unsettled = self.unsettled.saturating_add(1);
        }
        again
    }

    /// Applies the acts of the next record, if there are any; `has`: the row's base holds them.
    pub(super) fn step(&mut self, epoch: Epoch, has: bool) -> Option<Step> {
        let offset = self.queue.front()?.offset;
        let Some(since) = self.spilled else { return Some(self.step_inline(offset, epoch, has)) };
        let is_before = since.epoch() == epoch && since.as_of().covers(offset);
        if is_before && !mutant!("spill-without-name") {
            let acts = self.take(offset).len(); // the spill took them in
            return Some(Step::Applied { change: 0, changed: false, acts });
        }
        let next = self.queue.iter().take_while(|act| act.offset == offset);
        let mut newer = Vec::new();
        for act in next {
            let Some(entry) = self.entries.get(&act.actor) else { continue };
            if entry.flags & LOADING != 0 {
                return Some(Step::Waits);
            }
            if entry.as_of.covers(offset) {
                newer.push(act.actor.clone());
            }
        }
        if !newer.is_empty() && !has && !mutant!("no-reread") {
            return Some(Step::Reread);
        }
        newer.sort_unstable();
        Some(self.step_spilled(offset, has, &newer))
    }

    /// Takes the next act out of the queue, if it is a reset.
    pub(super) fn take_reset(&mut self) -> Option<(Offset, u64)> {
        let Some(Act { offset, deed: Deed::Reset(generation), .. }) = self.queue.front() else {
            return None;
        };
        let reset = (*offset, *generation);
        self.queue.pop_front();
        Some(reset)
    }

    /// Nobody is in any more. Once it has spilled, what the ledger said before `since` is void.
    pub(super) fn begin_anew(&mut self, since: Stamp) {
        self.members.clear();
        if self.spilled.is_some() {
            self.list.clear();
            self.move_on(since);
        }
    }

    /// The ledger holds who is in since then, and older entries are void.
    pub(super) fn move_on(&mut self, since: Stamp) {
        if self.spilled.is_none_or(|known| known >= since) {
            return;
        }
        self.spilled = Some(since);
        for entry in self.entries.values_mut() {
            if entry.as_of >= since.as_of() {
                continue;
            }
            entry.is_in = false;
            if entry.flags & (DIRTY | FLYING) == DIRTY {
                self.unsettled = self.unsettled.saturating_sub(1);
            }
            entry.flags &= !DIRTY; // it would say what is void
        }
    }

    fn step_inline(&mut self, offset: Offset, epoch: Epoch, has: bool) -> Step {
        let (acts, before) = (self.take(offset), self.members.len());
        let mut changed = false;
        for act in acts.iter().filter(|_| !has) {
            changed |= if act.deed == Deed::ComesIn {
                self.members.insert(act.actor.clone())
            } else {
                self.members.remove(&act.actor)
            };
        }
        let after = self.members.len();
        if after > self.most_inline {
            self.spill(offset, epoch);
        }
        Step::Applied { change: difference(after, before), changed, acts: acts.len() }
    }

    /// From here on the ledger holds who is in: all of them as of the end of this record.
    fn spill(&mut self, offset: Offset, epoch: Epoch) {
        let Ok(since) = Stamp::new(epoch, offset.as_of()) else { return };
        self.spilled = Some(since);
        self.list = std::mem::take(&mut self.members).into_iter().collect();
        let entry = || Entry { is_in: true, as_of: offset.as_of(), ..Entry::default() };
        self.entries = self.list.iter().map(|actor| (actor.clone(), entry())).collect();
    }

    /// Entries that are newer than the record hold it already; their actors come sorted.
    fn step_spilled(&mut self, offset: Offset, has: bool, newer: &[Box<str>]) -> Step {
        let acts = self.take(offset);
        let (mut change, mut changed) = (0i64, false);
        for act in acts.iter().filter(|act| newer.binary_search(&act.actor).is_err()) {
            let Some(entry) = self.entries.get_mut(&act.actor) else { continue };
            let comes_in = act.deed == Deed::ComesIn;
            if entry.is_in == comes_in {
                continue;
            }
            entry.is_in = comes_in;
            entry.as_of = offset.as_of();
            if entry.flags & DIRTY == 0 {
                if entry.flags & FLYING == 0 {
                    self.unsettled = self.unsettled.saturating_add(1);
                }
                entry.flags |= DIRTY;
                self.changed.push(act.actor.clone());
            }
            changed |= !has;
            change = change.saturating_add(match (has, comes_in) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => -1,
            });
        }
        Step::Applied { change, changed, acts: acts.len() }
    }

    /// Takes the acts of one record out of the queue.
    fn take(&mut self, offset: Offset) -> Vec<Act> {
        let acts = self.queue.iter().take_while(|act| act.offset == offset).count();
        let acts: Vec<Act> = self.queue.drain(..acts).collect();
        for act in &acts {
            if let Some(entry) = self.entries.get_mut(&act.actor) {
                entry.pins = entry.pins.saturating_sub(1);
            }
        }
        acts
    }
}

fn difference(after: usize, before: usize) -> i64 {
    let wide = |members: usize| i64::try_from(members).unwrap_or(i64::MAX);
    wide(after).saturating_sub(wide(before))
}
