//! The metrics of ingest.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tally_service::metrics::{ByPartition, Metrics};

/// The label of what was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCode {
    pub(crate) code: String,
}

/// What ingest counts of itself.
#[derive(Debug, Clone)]
pub(crate) struct IngestMetrics {
    pub(crate) accepted: Counter,
    pub(crate) rejected: Family<ByCode, Counter>,
    pub(crate) shed: Counter,
    pub(crate) in_doubt: Counter,
    pub(crate) records: Counter,
    pub(crate) append_seconds: Histogram,
    pub(crate) pending: Gauge,
    pub(crate) routed: Family<ByPartition, Counter>,
    pub(crate) spread_counters: Gauge,
    pub(crate) widest_spread: Gauge,
}

impl IngestMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let own = IngestMetrics {
            accepted: Counter::default(),
            rejected: Family::default(),
            shed: Counter::default(),
            in_doubt: Counter::default(),
            records: Counter::default(),
            append_seconds: Histogram::new(exponential_buckets(0.000_5, 2.0, 16)),
            pending: Gauge::default(),
            routed: Family::default(),
            spread_counters: Gauge::default(),
            widest_spread: Gauge::default(),
        };
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, counter: &Counter| {
                registry.register(name, help, counter.clone());
            };
            add("ingest_events", "Events that the log has, durable", &own.accepted);
            add("ingest_shed_events", "Events answered with 429: nothing was taken", &own.shed);
            add("ingest_in_doubt_events", "Events answered with 503", &own.in_doubt);
            add("ingest_records", "Records that were appended", &own.records);
            let help = "Events that were refused as invalid";
            registry.register("ingest_rejected_events", help, own.rejected.clone());
            let help = "Time until the log had a record";
            registry.register("ingest_append_seconds", help, own.append_seconds.clone());
            let help = "Events that wait for the log";
            registry.register("ingest_pending_events", help, own.pending.clone());
            let help = "Events that were dealt to a partition";
            registry.register("ingest_partition_events", help, own.routed.clone());
            let help = "Counters so hot that they are dealt over several slots";
            registry.register("ingest_spread_counters", help, own.spread_counters.clone());
            let help = "The most slots that a counter is dealt over";
            registry.register("ingest_widest_spread", help, own.widest_spread.clone());
        });
        own
    }
}
