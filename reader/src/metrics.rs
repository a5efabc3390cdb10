//! The reader's metrics.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tally_service::metrics::Metrics;

/// What a reader counts of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReaderMetrics {
    pub(crate) reads: Counter,
    pub(crate) store_reads: Counter,
    pub(crate) stale_answers: Counter,
    pub(crate) failures: Counter,
    pub(crate) staleness_ms: Gauge,
}

impl ReaderMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let own = ReaderMetrics::default();
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, counter: &Counter| {
                registry.register(name, help, counter.clone());
            };
            add("reader_reads", "Subjects that were asked for", &own.reads);
            add("reader_store_reads", "Subjects that were read from the store", &own.store_reads);
            let help = "Old answers served while the store was away";
            add("reader_stale_answers", help, &own.stale_answers);
            add("reader_failures", "Reads that had no answer at all", &own.failures);
            let help = "Age of the watermark, in milliseconds; -1: a partition is not covered";
            registry.register("reader_watermark_age_ms", help, own.staleness_ms.clone());
        });
        own
    }
}
