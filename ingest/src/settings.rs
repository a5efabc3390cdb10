//! The settings of ingest.

use serde::{Deserialize, Serialize};

/// `[ingest]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestSettings {
    /// Events that may wait for the log at once; beyond it a request is answered with 429.
    pub max_pending_events: usize,
    /// Events a second of one counter that one partition takes: a hotter counter is dealt over
    /// several.
    pub slot_rate: u64,
    /// How long a request may take to arrive, in milliseconds.
    pub body_timeout_ms: u64,
}

impl Default for IngestSettings {
    fn default() -> Self {
        IngestSettings { max_pending_events: 200_000, slot_rate: 10_000, body_timeout_ms: 15_000 }
    }
}
