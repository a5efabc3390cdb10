//! The engine: the pure fold of one partition.
//!
//! Records, loaded bases and acks go in; loads, facts and checkpoints come out. No clock, no
//! randomness, no I/O, no hash order that shows. Invariants, each named as in DESIGN.md:
//!
//! * every record is applied once, in order: an offset other than the expected one is refused;
//! * a record is applied to a row only if it is not below the row's as-of (F5);
//! * a base newer than the checkpoint at start is written again before a checkpoint passes it (F3);
//! * a checkpoint covers only what every row of an acked flush holds (F3);
//! * only rows that are neither dirty nor being flushed are evicted (F3);
//! * whether an event is a repeat follows from the log alone, whoever folds it (F2).
//!
//! A mode is a room: deltas are summed in `fold`, actors are counted in `acts`, `set` and `sets`.
//! Events with an id pass `repeats` and its `window` before; `resets` begins a counter anew.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing
    )
)]

mod acts;
mod base;
mod flush;
mod fold;
mod pending;
mod repeats;
mod resets;
mod rows;
mod scopes;
mod set;
mod sets;
#[cfg(test)]
mod tests;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;

use tally_proto::{
    AsOf, Checkpoint, CounterId, Epoch, Fingerprint, Kinds, Offset, Partition, Reset,
};
use tally_store::DeadLetter;
use thiserror::Error;

pub use flush::Flush;
pub use fold::Folded;

use pending::Pending;
use rows::{RowNumber, Rows};
use scopes::Scopes;
use sets::Sets;
use window::Window;

/// What bounds an engine's memory.
#[derive(Debug, Clone, Copy)]
pub struct EngineLimits {
    /// Rows in memory, and as many entries of the ledger; clean ones are evicted above it, and above twice as many the fold pauses.
    pub counters: usize,
    /// Events that wait for the base of their counter.
    pub pending_events: usize,
    /// Bytes of dead letters that are not flushed yet.
    pub dead_letter_bytes: usize,
}

/// Why a partition must stop. Nothing after it was folded; an operator decides.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Stop {
    /// A newer build wrote it.
    #[error(
        "the record at offset {0} has a content type that this build does not know: \
         upgrade this aggregator, the partition goes on by itself"
    )]
    NewerRecord(Offset),
    /// A fact of another generation of the log.
    #[error(
        "the fact of {row} belongs to epoch {found}, but the log is in epoch {expected}: \
         another layout is in force, restart this aggregator"
    )]
    OtherEpoch {
        /// Which row.
        row: String,
        /// The row's epoch.
        found: Epoch,
        /// Ours.
        expected: Epoch,
    },
    /// The ledger names an act that no fact has: it was written by no aggregator, or the store
    /// lost facts.
    #[error(
        "the ledger of {row} is newer than every fact of it: the store has lost facts that it had \
         acknowledged, restore it as a whole"
    )]
    LedgerAhead {
        /// Which row.
        row: String,
    },
}

/// The fold of one partition.
#[derive(Debug)]
pub struct Engine {
    partition: Partition,
    /// Of the log: by it an actor's events find their partition.
    partitions: u32,
    epoch: Epoch,
    limits: EngineLimits,
    kinds: Arc<Kinds>,
    scopes: Scopes,
    rows: Rows,
    pending: Pending,
    sets: Sets,
    /// Sets that the record at hand acts on.
    touched: Vec<RowNumber>,
    /// The next offset to apply.
    next: AsOf,
    /// The as-of of the checkpoint at start: a base above it must be written again.
    resumed_at: AsOf,
    /// The as-of of the last checkpoint that was acked, and when its last record was appended.
    durable: AsOf,
    durable_append_time_ms: Option<i64>,
    /// Nobody will read below it again, if the last checkpoint that was acked stays.
    needed: AsOf,
    /// Places where a checkpoint could stand, oldest first: a batch's last record.
    marks: VecDeque<Mark>,
    /// The last record that was taken in, or that the checkpoint at start names.
    last: Option<Fingerprint>,
    /// The hole that the log says there is: from here, to the first record after it.
    hole: Option<(Offset, Offset)>,
    dead_letters: Vec<DeadLetter>,
    dead_letter_bytes: usize,
    /// Resets that began here, to be carried to all other partitions.
    carry: Vec<Reset>,
    flying: Option<flush::Flying>,
    folded_events: u64,
    /// The ids that tell repeats from new events, and how many repeats were left out.
    window: Window,
    repeats: u64,
}

/// A place where a checkpoint could stand: after this record.
#[derive(Debug, Clone, Copy)]
struct Mark {
    last: Fingerprint,
    /// Where the window began there.
    window_from: AsOf,
}

impl Engine {
    /// An engine of one of so many partitions that goes on from a checkpoint, or from the log's
    /// beginning; it reads from where the checkpoint's window begins.
    pub fn resume(
        (partition, partitions): (Partition, u32),
        epoch: Epoch,
        kinds: Arc<Kinds>,
        limits: EngineLimits,
        checkpoint: Option<Checkpoint>,
    ) -> Self {
        let start = checkpoint.map_or(AsOf::ZERO, |checkpoint| checkpoint.as_of);
        let last = checkpoint.and_then(|checkpoint| checkpoint.last);
        let window_from = checkpoint.map_or(start, |checkpoint| checkpoint.window_from.min(start));
        let window = Window::new(kinds.retry_window());
        Engine {
            partition,
            partitions,
            epoch,
            limits,
            kinds,
            scopes: Scopes::default(),
            rows: Rows::default(),
            pending: Pending::default(),
            sets: Sets::default(),
            touched: Vec::new(),
            next: window_from,
            resumed_at: start,
            durable: start,
            durable_append_time_ms: last.map(|last| last.append_time_ms),
            needed: window_from,
            marks: VecDeque::new(),
            last,
            hole: None,
            dead_letters: Vec::new(),
            dead_letter_bytes: 0,
            carry: Vec::new(),
            flying: None,
            folded_events: 0,
            window,
            repeats: 0,
        }
    }

    /// The next offset to apply, or to read again.
    pub fn next(&self) -> AsOf {
        self.next
    }

    /// Everything below it is durable in facts.
    pub fn durable(&self) -> AsOf {
        self.durable
    }

    /// Nobody reads below it again, unless the store loses a checkpoint that it acknowledged.
    pub fn needed(&self) -> AsOf {
        self.needed
    }

    /// The last record that was taken in: by it the log is recognised.
    pub fn last(&self) -> Option<Fingerprint> {
        self.last
    }

    /// When the last record below [`Engine::durable`] was appended.
    pub fn durable_append_time_ms(&self) -> Option<i64> {
        self.durable_append_time_ms
    }

    /// How many entries of records were counted since this was asked last.
    pub fn take_folded_events(&mut self) -> u64 {
        std::mem::take(&mut self.folded_events)
    }

    /// Rows that were written and did not change since, by turns, with their totals: what the store
    /// must hold of them.
    pub fn take_sample(&mut self, most: usize) -> Vec<(CounterId, i64)> {
        let numbers = self.rows.take_sample(most);
        let total = |number| {
            let row = self.rows.get(number)?;
            Some((self.scopes.counter(row.scope, &row.subject), row.total))
        };
        numbers.into_iter().filter_map(total).collect()
    }

    /// How many counters are in memory.
    pub fn counters(&self) -> usize {
        self.rows.len()
    }

    /// How many rows a flush would write now.
    pub fn dirty(&self) -> usize {
        self.rows.dirty()
    }

    /// Whether to fold nothing more until loads or flushes made room.
    pub fn is_full(&self) -> bool {
        let waiting = self.pending.events().saturating_add(self.sets.queued());
        let in_memory = self.rows.len().max(self.sets.entries());
        waiting >= self.limits.pending_events
            || self.dead_letter_bytes >= self.limits.dead_letter_bytes
            || in_memory >= self.limits.counters.saturating_mul(2)
    }
}
