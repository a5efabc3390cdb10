//! The rows that every store keeps, beside layout and checkpoints.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tally_proto::{AsOf, CounterId, Fact, Lane, LedgerEntry, Offset, Partition};

/// One fact with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRow {
    /// What was counted.
    pub counter: CounterId,
    /// Which lane of rows it stands in.
    pub lane: Lane,
    /// Who says so.
    pub partition: Partition,
    /// What it says.
    pub fact: Fact,
}

/// One entry of the ledger with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The counter that counts the actor.
    pub counter: CounterId,
    /// Who.
    pub actor: Box<str>,
    /// In or out.
    pub entry: LedgerEntry,
}

/// What createCounter said of a counter. A plain row: overwritten, never a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The least number of slots that its plain deltas are dealt over, once it is warm.
    pub shards: u32,
}

/// How far one aggregator has folded a partition. A plain row: overwritten, never a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The partition.
    pub partition: Partition,
    /// Who says so.
    pub aggregator: Box<str>,
    /// Everything below it is durable in facts.
    pub as_of: AsOf,
    /// Everything appended before this time is durable in facts (milliseconds since 1970).
    pub caught_up_at_ms: i64,
}

/// What could not be counted, kept until an operator looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where its record stands.
    pub partition: Partition,
    /// Where its record stands.
    pub offset: Offset,
    /// Which event of the record; 0 also for a record as a whole.
    pub index: u32,
    /// When the log appended the record, in milliseconds since 1970.
    pub append_time_ms: i64,
    /// A stable code.
    pub code: Box<str>,
    /// What was wrong, for people.
    pub reason: Box<str>,
    /// The record's key.
    pub key: Bytes,
    /// The record's value, or the one event of it.
    pub value: Bytes,
}

impl DeadLetter {
    /// The day that it is filed under: determined by the log, not by a clock.
    pub fn day(&self) -> i32 {
        day_of(self.append_time_ms)
    }
}

/// The day of a time, in days since 1970.
pub fn day_of(unix_ms: i64) -> i32 {
    i32::try_from(unix_ms.div_euclid(86_400_000)).unwrap_or(0)
}
