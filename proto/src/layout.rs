//! The layout: what is fixed for the life of a log.

use serde::{Deserialize, Serialize};

/// The one row that fixes the log for life; whoever finds another log refuses to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The log's own id (Kafka's cluster id, or the id in the embedded log's folder).
    pub cluster: String,
    /// The events topic.
    pub topic: String,
    /// How many partitions; the route of every event depends on it.
    pub partitions: u32,
    /// The generation of the log.
    pub epoch: u8,
    /// The version of the fold; a build with a lower one of its own does not start.
    pub fold_version: u32,
}

impl Layout {
    /// The fold that this build knows. 1: sums and sets; 2: ids and resets, too.
    pub const FOLD_VERSION: u32 = 2;
}
