//! The embedded log's settings.

use serde::{Deserialize, Serialize};

/// `[log]`: how long the embedded log keeps what is counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedLogSettings {
    /// A segment older than this is dropped.
    pub retention_hours: u64,
    /// Above this size, the oldest segments are dropped.
    pub retention_bytes: u64,
    /// A segment is closed at this size (and at a tenth of the retention's age).
    pub segment_bytes: u64,
}

impl Default for EmbeddedLogSettings {
    fn default() -> Self {
        EmbeddedLogSettings {
            retention_hours: 7 * 24,
            retention_bytes: 8 << 30,
            segment_bytes: 256 << 20,
        }
    }
}

impl EmbeddedLogSettings {
    pub(super) fn retention_ms(&self) -> i64 {
        i64::try_from(self.retention_hours.saturating_mul(3_600_000)).unwrap_or(i64::MAX)
    }
}
