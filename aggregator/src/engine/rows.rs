//! The rows of counters in memory: a slab in chunks, an index by hash, and who is dirty.
//!
//! Invariant: a row is in `dirty` exactly if its DIRTY flag is set; a row that loads is never
//! dirty or flying; only rows without a flag but USED are evicted.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use tally_proto::{AsOf, Lane, Offset};
use tally_service::mutant;

/// The number of a row.
pub(super) type RowNumber = u32;

/// What is known of one counter in this partition. 48 bytes beside its subject.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) subject: Box<str>,
    pub(super) total: i64,
    /// Records below it are in the total already; from the base.
    pub(super) as_of: AsOf,
    pub(super) scope: u32,
    pub(super) generation: u64,
    pub(super) lane: Lane,
    flags: u8,
}

const LOADING: u8 = 1;
const DIRTY: u8 = 2;
const FLYING: u8 = 4;
const USED: u8 = 8;
const FREE: u8 = 16;
const HELD: u8 = 32;

impl Row {
    pub(super) fn is_loading(&self) -> bool {
        self.flags & LOADING != 0
    }

    fn is_evictable(&self) -> bool {
        let mut busy = LOADING | DIRTY | FLYING | FREE | HELD;
        if mutant!("evict-dirty") {
            busy = LOADING | FREE | HELD;
        }
        if mutant!("evict-flying") {
            busy = LOADING | DIRTY | FREE | HELD;
        }
        self.flags & busy == 0
    }
}

/// Rows that one search for rows to evict looks at, at most: about a millisecond.
const MOST_LOOKS: usize = 65_536;

/// What became of a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It is in the total now, and the row is dirty.
    Counted,
    /// The base holds it already.
    Before,
    /// The total would pass 64 bits.
    Overflow,
}

/// Rows a chunk: the slab grows by a chunk, not by doubling.
const CHUNK: usize = 4_096;

#[derive(Debug)]
pub(super) struct Rows {
    chunks: Vec<Vec<Row>>,
    index: HashTable<RowNumber>,
    free: Vec<RowNumber>,
    dirty: Vec<RowNumber>,
    /// Where the search for a row to evict goes on.
    hand: RowNumber,
    /// Where the search for rows to read back goes on.
    sampled: RowNumber,
    hasher: FixedState,
}

impl Default for Rows {
    fn default() -> Self {
        Rows {
            chunks: Vec::new(),
            index: HashTable::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            hand: 0,
            sampled: 0,
            hasher: FixedState::with_seed(0x0074_616c_6c79), // the fold must not differ by process
        }
    }
}

fn at(chunks: &[Vec<Row>], number: RowNumber) -> Option<&Row> {
    chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    pub(super) fn get(&self, number: RowNumber) -> Option<&Row> {
        at(&self.chunks, number)
    }

    pub(super) fn get_mut(&mut self, number: RowNumber) -> Option<&mut Row> {
        self.chunks.get_mut(number as usize / CHUNK)?.get_mut(number as usize % CHUNK)
    }

    fn hash(&self, scope: u32, subject: &str) -> u64 {
        self.hasher.hash_one((scope, subject))
    }

    pub(super) fn find(&self, scope: u32, subject: &str) -> Option<RowNumber> {
        let is_it = |number: &RowNumber| {
            at(&self.chunks, *number).is_some_and(|r| r.scope == scope && &*r.subject == subject)
        };
        self.index.find(self.hash(scope, subject), is_it).copied()
    }

    /// A new row that waits for its base. The counter must not have one.
    pub(super) fn add_loading(&mut self, scope: u32, subject: &str) -> RowNumber {
        let row = Row {
            subject: subject.into(),
            total: 0,
            as_of: AsOf::ZERO,
            scope,
            generation: 0,
            lane: Lane::default(),
            flags: LOADING,
        };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(slot) = self.get_mut(number) {
                    *slot = row;
                }
                number
            }
            None => self.push(row),
        };
        let (hash, hasher, chunks) = (self.hash(scope, subject), &self.hasher, &self.chunks);
        self.index.insert_unique(hash, number, |number| {
            at(chunks, *number).map_or(0, |row| hasher.hash_one((row.scope, &*row.subject)))
        });
        number
    }

    fn push(&mut self, row: Row) -> RowNumber {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows as it needs, so that a small partition stays small.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let before = self.chunks.len().saturating_sub(1).saturating_mul(CHUNK);
        let Some(chunk) = self.chunks.last_mut() else { return 0 };
        chunk.push(row);
        let number = before.saturating_add(chunk.len()).saturating_sub(1);
        RowNumber::try_from(number).expect("memory ends before 2^32 rows of 48 bytes")
    }

    /// The row has its base.
    pub(super) fn set_loaded(&mut self, number: RowNumber) {
        if let Some(row) = self.get_mut(number) {
            row.flags = (row.flags & !LOADING) | USED;
        }
    }

    /// Keeps the row in memory, or lets it go.
    pub(super) fn set_held(&mut self, number: RowNumber, held: bool) {
        if let Some(row) = self.get_mut(number) {
            row.flags = if held { row.flags | HELD } else { row.flags & !HELD };
        }
    }

    /// Adds the delta of the record at `offset` to a row that has its base.
    pub(super) fn add(&mut self, number: RowNumber, offset: Offset, delta: i64) -> Added {
        let Some(row) = self.get_mut(number) else { return Added::Before };
        if row.as_of.covers(offset) && !mutant!("count-what-the-base-holds")
            || mutant!("as-of-inclusive") && row.as_of.next() == offset
        {
            return Added::Before;
        }
        let mut sum = row.total.checked_add(delta);
        if mutant!("overflow-wraps") {
            sum = Some(row.total.wrapping_add(delta));
        }
        let Some(mut total) = sum else { return Added::Overflow };
        if mutant!("clamp-partials") {
            total = total.max(0);
        }
        row.total = total;
        if row.flags & (DIRTY | USED) != (DIRTY | USED) {
            self.set_dirty(number);
        }
        Added::Counted
    }

    /// Begins a row anew that has its base, unless the base holds it, or a newer reset came before.
    pub(super) fn reset(&mut self, number: RowNumber, offset: Offset, generation: u64) {
        let Some(row) = self.get_mut(number) else { return };
        let is_old = generation <= row.generation && !mutant!("reset-once-more");
        if row.as_of.covers(offset) || is_old {
            return;
        }
        row.total = 0;
        row.generation = generation;
        self.set_dirty(number);
    }

    /// The row changed, or must be written again.
    pub(super) fn set_dirty(&mut self, number: RowNumber) {
        if let Some(row) = self.get_mut(number) {
            let news = row.flags & DIRTY == 0;
            row.flags |= DIRTY | USED;
            if news {
                self.dirty.push(number);
            }
        }
    }

    /// Takes all dirty rows to be written; they are flying until they land.
    pub(super) fn take_off(&mut self) -> Vec<RowNumber> {
        let flying = std::mem::take(&mut self.dirty);
        for number in &flying {
            if let Some(row) = self.get_mut(*number) {
                row.flags = (row.flags & !DIRTY) | FLYING;
            }
        }
        flying
    }

    /// The flying rows were written, or must be written again.
    pub(super) fn land(&mut self, flying: &[RowNumber], written: bool) {
        for number in flying {
            if let Some(row) = self.get_mut(*number) {
                row.flags &= !FLYING;
            }
            if mutant!("landed-is-clean") {
                self.forget_change(*number);
            }
            if !written {
                self.set_dirty(*number);
            }
        }
    }

    /// Only for a mutant: what changed while the row flew is taken for written.
    fn forget_change(&mut self, number: RowNumber) {
        self.dirty.retain(|dirty| *dirty != number);
        if let Some(row) = self.get_mut(number) {
            row.flags &= !DIRTY;
        }
    }

    /// Evicts clean rows that were not used lately until `most` are left, or it has looked at
    /// enough; returns the evicted rows with their scopes.
    pub(super) fn evict(&mut self, most: usize) -> Vec<(RowNumber, u32)> {
        let mut evicted = Vec::new();
        let slots = self.slots();
        // Around twice at most: the first round takes the USED mark, the second the row. And in
        // proportion to what is too many: while nearly all rows are dirty, a search would go
        // around for nothing with each batch.
        let excess = self.len().saturating_sub(most);
        let looks = excess.saturating_mul(8).saturating_add(1_024).min(MOST_LOOKS);
        for _ in 0..looks.min(slots.saturating_mul(2)) {
            if self.len() <= most {
                break;
            }
            let number = self.hand;
            let next = number.saturating_add(1);
            self.hand = if (next as usize) < slots { next } else { 0 };
            let Some(row) = self.get_mut(number) else { continue };
            if row.flags & USED != 0 {
                row.flags &= !USED;
            } else if row.is_evictable() {
                evicted.push((number, self.remove(number)));
            }
        }
        evicted
    }

    /// Some rows that are neither dirty nor being written, by turns.
    pub(super) fn take_sample(&mut self, most: usize) -> Vec<RowNumber> {
        let slots = self.slots();
        let mut sample = Vec::with_capacity(most);
        for _ in 0..slots.min(most.saturating_mul(8)) {
            let number = self.sampled;
            let next = number.saturating_add(1);
            self.sampled = if (next as usize) < slots { next } else { 0 };
            if sample.len() < most && self.get(number).is_some_and(Row::is_evictable) {
                sample.push(number);
            }
        }
        sample
    }

    fn slots(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1).saturating_mul(CHUNK);
        full.saturating_add(self.chunks.last().map_or(0, Vec::len))
    }

    fn remove(&mut self, number: RowNumber) -> u32 {
        let Some(row) = self.get_mut(number) else { return 0 };
        row.flags = FREE;
        let (scope, subject) = (row.scope, std::mem::take(&mut row.subject));
        let hash = self.hash(scope, &subject);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
        scope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_costs_48_bytes_beside_its_subject() {
        assert_eq!(size_of::<Row>(), 48);
    }

    #[test]
    fn only_rows_that_are_clean_and_unused_are_evicted() {
        let mut rows = Rows::default();
        let numbers: Vec<_> = (0..10).map(|n| rows.add_loading(0, &format!("s{n}"))).collect();
        for number in &numbers[1..] {
            rows.set_loaded(*number);
        }
        rows.set_dirty(numbers[1]);
        rows.set_dirty(numbers[2]);
        let flying = rows.take_off();
        rows.set_dirty(numbers[2]); // changed again while it flies
        rows.set_dirty(numbers[3]);
        assert_eq!(rows.evict(0).len(), 6, "the loading, the flying and the dirty stay");
        rows.land(&flying, true);
        assert_eq!(rows.evict(0).len(), 1, "the one that landed clean goes");
        assert!(rows.find(0, "s1").is_none());
        for subject in ["s0", "s2", "s3"] {
            assert!(rows.find(0, subject).is_some());
        }
        assert_eq!(rows.add_loading(0, "new"), numbers[1], "its place is used again");
    }

    #[test]
    fn rows_that_did_not_land_are_dirty_once() {
        let mut rows = Rows::default();
        let number = rows.add_loading(0, "s");
        rows.set_loaded(number);
        rows.set_dirty(number);
        let flying = rows.take_off();
        rows.set_dirty(number);
        rows.land(&flying, false);
        assert_eq!(rows.take_off(), [number]);
    }
}
