//! Metrics: one registry a process, in the OpenMetrics text format.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The label of what is measured per partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByPartition {
    /// Its number.
    pub partition: u32,
}

/// The registry that every part of a process registers with. Clones share it.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Default for Metrics {
    fn default() -> Self {
        Metrics(Arc::new(Mutex::new(Registry::with_prefix("tally"))))
    }
}

impl Metrics {
    /// Lets a part register its metrics.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.lock())
    }

    /// The text of all metrics.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.lock()).expect("writing to a string does not fail");
        text
    }
}
