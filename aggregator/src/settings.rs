//! The aggregator's settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tally_proto::Partition;
use thiserror::Error;

use crate::engine::EngineLimits;

/// `[aggregator]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AggregatorSettings {
    /// Partitions by number (`0-31,40`) instead of a consumer group.
    pub assign: Option<String>,
    /// The consumer group.
    pub group: String,
    /// The name under which progress is written; default: host name and port.
    pub id: Option<String>,
    /// Counters in memory over all partitions; about 100 bytes and the subject each.
    pub max_counters: usize,
}

impl Default for AggregatorSettings {
    fn default() -> Self {
        AggregatorSettings {
            assign: None,
            group: "tally".into(),
            id: None,
            max_counters: 4_000_000,
        }
    }
}

impl AggregatorSettings {
    /// The share of one of `partitions` partitions.
    pub fn engine_limits(&self, partitions: u32) -> EngineLimits {
        EngineLimits {
            counters: (self.max_counters / partitions.max(1) as usize).max(1_000),
            pending_events: 200_000,
            dead_letter_bytes: 8 << 20,
        }
    }
}

/// `[flush]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlushSettings {
    /// From the start of one flush to the start of the next, or as long as the flush takes.
    pub interval_ms: u64,
}

impl Default for FlushSettings {
    fn default() -> Self {
        FlushSettings { interval_ms: 1_000 }
    }
}

impl FlushSettings {
    /// The interval.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

/// A list of partitions that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}' is no list of partitions below {partitions}, such as 0-31,40")]
pub struct BadPartitions {
    text: String,
    partitions: u32,
}

/// The partitions of a list such as `0-31,40`, in order, each once.
pub fn parse_partitions(text: &str, partitions: u32) -> Result<Vec<Partition>, BadPartitions> {
    let bad = || BadPartitions { text: text.to_owned(), partitions };
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= partitions {
            return Err(bad());
        }
        list.extend((first..=last).map(Partition));
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_listed_by_number_and_range() {
        let list = |text| parse_partitions(text, 64).map(|l| l.into_iter().map(|p| p.0).collect());
        assert_eq!(list("0-2,40, 1"), Ok(vec![0, 1, 2, 40]));
        for wrong in ["", "2-1", "64", "a", "0-64", "1,,2"] {
            assert!(parse_partitions(wrong, 64).is_err(), "{wrong}");
        }
    }
}
