//! The JSON shapes of the HTTP API that more than one room speaks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer to a write.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Accepted {
    /// How many events are in the log, durable.
    pub accepted: usize,
    /// What was refused, in the order of the request.
    pub rejected: Vec<Rejected>,
    /// Opaque; makes a later read wait for this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// One refused event of a request.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the request, from 0.
    pub index: usize,
    /// A stable code.
    pub code: Cow<'static, str>,
    /// What to do about it.
    pub detail: String,
    /// Whether sending it again may help.
    pub retryable: bool,
}

/// One counter's total and the time as of which it holds.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct CounterAnswer {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// The thing counted.
    pub subject: Box<str>,
    /// What was counted.
    #[serde(flatten)]
    pub value: CounterValue,
}

/// A total, how it looks, and as of when it holds.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct CounterValue {
    /// A string by default, since totals pass 2^53; a number with `?numbers=json`.
    pub total: Total,
    /// The total for people: "10.2M".
    pub display: String,
    /// Everything appended before it is counted (RFC 3339); none: not known yet.
    pub as_of: Option<String>,
    /// How long ago that was, in milliseconds.
    pub staleness_ms: Option<u64>,
    /// Whether the total is exact as of then, or an estimate.
    pub exact: bool,
    /// Set while the store is away and an old answer is served.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// The facts that the total is the sum of, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<Vec<ShardAnswer>>,
}

/// A total in JSON.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Total {
    /// The default: every client reads it exactly.
    Text(String),
    /// `?numbers=json`.
    Number(i64),
}

/// One fact of a counter.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ShardAnswer {
    /// The partition, which is the shard.
    pub partition: u32,
    /// Its partial total.
    pub partial: String,
    /// The next offset that it does not hold.
    pub as_of: u64,
}

/// All counters of a subject.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct SubjectAnswer {
    /// The thing counted.
    pub subject: Box<str>,
    /// Its namespace.
    pub namespace: Box<str>,
    /// By kind.
    pub counters: BTreeMap<Box<str>, CounterValue>,
}

/// Some of the actors that are in.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ActorsAnswer {
    /// Who they are.
    pub actors: Vec<Box<str>>,
    /// Where the next page begins; none after the last.
    pub next: Option<String>,
}

/// Dead letters, oldest first by partition.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct DeadLettersAnswer {
    /// What was set aside.
    pub dead_letters: Vec<DeadLetterAnswer>,
}

/// One event or record that could not be counted.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct DeadLetterAnswer {
    /// The partition of its record.
    pub partition: u32,
    /// The offset of its record.
    pub offset: u64,
    /// Its place within the record.
    pub index: u32,
    /// When the log appended the record (RFC 3339).
    pub appended_at: String,
    /// A stable code.
    pub code: Box<str>,
    /// What was wrong.
    pub reason: Box<str>,
    /// The record's key, if it is text.
    pub key: Option<String>,
    /// The value, if it is text.
    pub value: Option<String>,
    /// The value's bytes, in base64.
    pub value_base64: String,
}
