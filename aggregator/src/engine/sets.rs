//! The sets of a partition: which wait, which entries are to be loaded, which are to be written.
//!
//! Invariants: an entry that is pinned, dirty or being written is not evicted; the list of a spill
//! stays until a spilled fact was acknowledged, or a newer one taken over.

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;
use tally_proto::{AsOf, Epoch, LedgerEntry, Members, Offset, Stamp};
use tally_service::mutant;

use super::rows::RowNumber;
use super::set::{Act, DIRTY, Entry, FLYING, LOADING, Set, Step};

/// All sets of a partition.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: HashMap<RowNumber, Set, FixedState>,
    /// Acts that wait, and entries in memory.
    queued: usize,
    entries: usize,
    /// Sets with acts that wait; with a list.
    waiting: BTreeSet<RowNumber>,
    listed: BTreeSet<RowNumber>,
    wanted: VecDeque<(RowNumber, Box<str>)>,
    /// With so many entries in memory, a search for some to evict is worth its time again.
    evict_above: usize,
    dirty: Vec<(RowNumber, Box<str>)>,
}

impl Sets {
    /// How many acts wait.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// How many entries are in memory.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// How many entries and lists a flush would write now.
    pub(super) fn dirty(&self) -> usize {
        self.dirty.len().saturating_add(self.listed.len())
    }

    /// Whether the row counts actors.
    pub(super) fn has(&self, number: RowNumber) -> bool {
        self.sets.contains_key(&number)
    }

    pub(super) fn add(&mut self, number: RowNumber, most_inline: usize) {
        self.sets.insert(number, Set::new(most_inline));
    }

    /// The row was evicted.
    pub(super) fn remove(&mut self, number: RowNumber) {
        if let Some(set) = self.sets.remove(&number) {
            self.entries = self.entries.saturating_sub(set.entries.len());
        }
    }

    /// Whether the row must stay in memory.
    pub(super) fn is_busy(&self, number: RowNumber) -> bool {
        self.sets.get(&number).is_some_and(Set::is_busy)
    }

    /// An act takes its turn.
    pub(super) fn queue(&mut self, number: RowNumber, act: Act) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        let wanted = set.push(act);
        self.entries = self.entries.saturating_add(usize::from(wanted.is_some()));
        self.wanted.extend(wanted.map(|actor| (number, actor)));
        self.queued = self.queued.saturating_add(1);
        self.waiting.insert(number);
    }

    /// Below it everything is applied to the set; `None` if nothing waits.
    pub(super) fn front(&self, number: RowNumber) -> Option<AsOf> {
        self.sets.get(&number)?.queue.front().map(|act| AsOf(act.offset.0))
    }

    /// No checkpoint may pass it: the oldest act that waits.
    pub(super) fn oldest(&self) -> Option<AsOf> {
        self.waiting.iter().filter_map(|number| self.front(*number)).min()
    }

    /// The base of the row was loaded.
    pub(super) fn set_base(&mut self, number: RowNumber, members: &Members) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        let wanted = set.set_base(members);
        self.want(number, wanted);
    }

    /// Applies the acts of the next record that waits; `has`: the row's base holds them.
    pub(super) fn step(&mut self, number: RowNumber, epoch: Epoch, has: bool) -> Option<Step> {
        let set = self.sets.get_mut(&number)?;
        let step = set.step(epoch, has)?;
        let Step::Applied { acts, .. } = step else { return Some(step) };
        self.queued = self.queued.saturating_sub(acts);
        if set.queue.is_empty() {
            self.waiting.remove(&number);
        }
        self.dirty.extend(set.changed.drain(..).map(|actor| (number, actor)));
        if !set.list.is_empty() && self.listed.insert(number) {
            self.entries = self.entries.saturating_add(set.entries.len()); // it has just spilled
            let wanted = set.pin_queue();
            self.want(number, wanted);
        }
        Some(step)
    }

    /// These actors' entries came into memory, and are to be loaded.
    fn want(&mut self, number: RowNumber, actors: Vec<Box<str>>) {
        self.entries = self.entries.saturating_add(actors.len());
        self.wanted.extend(actors.into_iter().map(|actor| (number, actor)));
    }

    /// At most `most` entries to be loaded, each named once.
    pub(super) fn take_wanted(&mut self, most: usize) -> Vec<(RowNumber, Box<str>)> {
        self.wanted.drain(..most.min(self.wanted.len())).collect()
    }

    /// What the ledger says of an actor, or that it says nothing.
    pub(super) fn loaded(
        &mut self,
        number: RowNumber,
        actor: &str,
        found: Option<LedgerEntry>,
        epoch: Epoch,
        resumed_at: AsOf,
    ) {
        if let Some(set) = self.sets.get_mut(&number)
            && set.entry_loaded(actor, found, epoch, resumed_at)
        {
            self.dirty.push((number, actor.into()));
        }
    }

    /// Its fact is to be loaded again; says whether that is news.
    pub(super) fn begin_reread(&mut self, number: RowNumber) -> bool {
        let set = self.sets.get_mut(&number);
        set.is_some_and(|set| !std::mem::replace(&mut set.rereading, true))
    }

    /// Whether its fact was to be loaded again; it is here now.
    pub(super) fn take_reread(&mut self, number: RowNumber) -> bool {
        self.sets.get_mut(&number).is_some_and(|set| std::mem::take(&mut set.rereading))
    }

    /// A newer fact was taken over: who was in at the spill is in the ledger.
    pub(super) fn adopted(&mut self, number: RowNumber) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.list.clear();
            self.listed.remove(&number);
        }
    }

    /// Takes the next act that waits, if it is a reset: where it stands, and its generation.
    pub(super) fn take_reset(&mut self, number: RowNumber) -> Option<(Offset, u64)> {
        let set = self.sets.get_mut(&number)?;
        let reset = set.take_reset()?;
        self.queued = self.queued.saturating_sub(1);
        if set.queue.is_empty() {
            self.waiting.remove(&number);
        }
        Some(reset)
    }

    /// Nobody is in any more; the list of a spill that was not written need not be.
    pub(super) fn begin_anew(&mut self, number: RowNumber, since: Stamp) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.begin_anew(since);
            self.listed.remove(&number);
        }
    }

    /// A fact was taken over that says since when the ledger holds who is in.
    pub(super) fn move_on(&mut self, number: RowNumber, since: Stamp) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.move_on(since);
        }
    }

    /// Where it stands who is in.
    pub(super) fn members(&self, number: RowNumber) -> Members {
        self.sets.get(&number).map_or(Members::None, Set::members)
    }

    /// Sets whose list is to be written, with it and the stamp that it is of.
    pub(super) fn lists(&self) -> impl Iterator<Item = (RowNumber, Stamp, &[Box<str>])> {
        self.listed.iter().filter_map(|number| {
            let set = self.sets.get(number)?;
            Some((*number, set.spilled?, &set.list[..]))
        })
    }

    /// Takes all dirty entries to be written; they are flying until they land.
    pub(super) fn take_off(&mut self, epoch: Epoch) -> Vec<(RowNumber, Box<str>, LedgerEntry)> {
        let mut flying = Vec::with_capacity(self.dirty.len());
        for (number, actor) in std::mem::take(&mut self.dirty) {
            let Some(entry) = entry_mut(&mut self.sets, number, &actor) else { continue };
            if entry.flags & DIRTY == 0 {
                continue; // it became void, or was named before
            }
            entry.flags = (entry.flags & !DIRTY) | FLYING;
            let entry = LedgerEntry { epoch, as_of: entry.as_of, is_in: entry.is_in };
            flying.push((number, actor, entry));
        }
        flying
    }

    /// Lists and entries were written with their facts, or must be written again.
    pub(super) fn land(
        &mut self,
        lists: &[RowNumber],
        flying: Vec<(RowNumber, Box<str>)>,
        written: bool,
    ) {
        for number in lists.iter().filter(|_| written) {
            self.adopted(*number);
        }
        for (number, actor) in flying {
            let Some(set) = self.sets.get_mut(&number) else { continue };
            let Some(entry) = set.entries.get_mut(&actor) else { continue };
            entry.flags &= !FLYING;
            if entry.flags & DIRTY != 0 {
                continue; // it changed again meanwhile
            }
            let is_void = set.spilled.is_some_and(|since| entry.as_of < since.as_of());
            if written || is_void {
                set.unsettled = set.unsettled.saturating_sub(1);
            } else {
                entry.flags |= DIRTY;
                self.dirty.push((number, actor));
            }
        }
    }

    /// Time has passed: entries may have become clean.
    pub(super) fn look_again(&mut self) {
        self.evict_above = 0;
    }

    /// Evicts entries that nobody needs, if there are more than `most`, until there are an eighth
    /// less: a search looks at all of them, so it is made seldom.
    pub(super) fn evict(&mut self, most: usize) {
        let step = most / 8;
        if self.entries <= most.max(self.evict_above) {
            return;
        }
        self.evict_down_to(most.saturating_sub(step));
        self.evict_above = self.entries.saturating_add(step);
    }

    fn evict_down_to(&mut self, most: usize) {
        let busy = if mutant!("evict-dirty-entries") { LOADING } else { LOADING | DIRTY | FLYING };
        for set in self.sets.values_mut().filter(|set| set.list.is_empty()) {
            let before = set.entries.len();
            let mut excess = self.entries.saturating_sub(most);
            set.entries.retain(|_, entry| {
                let stays = excess == 0 || entry.pins > 0 || entry.flags & busy != 0;
                excess = excess.saturating_sub(usize::from(!stays));
                stays
            });
            self.entries = self.entries.saturating_sub(before.saturating_sub(set.entries.len()));
            if self.entries <= most {
                return;
            }
        }
    }
}

fn entry_mut<'s>(
    sets: &'s mut HashMap<RowNumber, Set, FixedState>,
    number: RowNumber,
    actor: &str,
) -> Option<&'s mut Entry> {
    sets.get_mut(&number)?.entries.get_mut(actor)
}
