//! The reader's settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[reader]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReaderSettings {
    /// How long a cached total is served before the store is read again, in milliseconds.
    pub reduce_interval_ms: u64,
    /// Subjects in the cache.
    pub cache_subjects: u64,
}

impl Default for ReaderSettings {
    fn default() -> Self {
        ReaderSettings { reduce_interval_ms: 1_000, cache_subjects: 200_000 }
    }
}

impl ReaderSettings {
    pub(crate) fn reduce_interval(&self) -> Duration {
        Duration::from_millis(self.reduce_interval_ms.max(1))
    }
}
