//! The settings of the Kafka log.

use serde::{Deserialize, Serialize};

/// `[kafka]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaSettings {
    /// Host and port of some brokers, separated by commas. Set: Kafka is the log.
    pub brokers: Option<String>,
    /// The events topic; other topics are named after it.
    pub topic: String,
    /// Copies of each record; what `tally setup` creates, and the least that roles accept.
    pub replication_factor: u16,
    /// How long an append may take until it is in doubt, in milliseconds.
    pub delivery_timeout_ms: u32,
    /// How long a group waits for a silent member, in milliseconds.
    pub session_timeout_ms: u32,
    /// How long `tally setup` lets the events topic keep records, in hours.
    pub retention_hours: u32,
    /// `classic`, or `consumer` for the protocol of KIP-848.
    pub group_protocol: String,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        KafkaSettings {
            brokers: None,
            topic: "tally.events".into(),
            replication_factor: 3,
            delivery_timeout_ms: 30_000,
            session_timeout_ms: 6_000,
            retention_hours: 7 * 24,
            group_protocol: "classic".into(),
        }
    }
}
