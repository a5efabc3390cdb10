//! The aggregator's metrics.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tally_proto::Partition;
use tally_service::metrics::{ByPartition, Metrics};

/// The label of a partition.
pub(crate) fn of(partition: Partition) -> ByPartition {
    ByPartition { partition: partition.0 }
}

/// What an aggregator counts of itself.
#[derive(Debug, Clone)]
pub(crate) struct AggregatorMetrics {
    pub(crate) events: Counter,
    pub(crate) repeats: Counter,
    pub(crate) records: Counter,
    pub(crate) rows_written: Counter,
    pub(crate) dead_letters: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) lag: Family<ByPartition, Gauge>,
    pub(crate) next_offset: Family<ByPartition, Gauge>,
    pub(crate) counters: Family<ByPartition, Gauge>,
    pub(crate) stopped: Family<ByPartition, Gauge>,
}

impl AggregatorMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let own = AggregatorMetrics {
            events: Counter::default(),
            repeats: Counter::default(),
            records: Counter::default(),
            rows_written: Counter::default(),
            dead_letters: Counter::default(),
            flush_failures: Counter::default(),
            flush_seconds: Histogram::new(exponential_buckets(0.002, 2.0, 14)),
            lag: Family::default(),
            next_offset: Family::default(),
            counters: Family::default(),
            stopped: Family::default(),
        };
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, counter: &Counter| {
                registry.register(name, help, counter.clone());
            };
            add("folded_events", "Entries of records that were counted", &own.events);
            add("repeated_events", "Events whose id had occurred before", &own.repeats);
            add("folded_records", "Records that were folded", &own.records);
            add("flushed_rows", "Fact rows that were written", &own.rows_written);
            add("dead_letters", "Events that were set aside", &own.dead_letters);
            add("flush_failures", "Flushes that have to be repeated", &own.flush_failures);
            registry.register("flush_seconds", "Time of one flush", own.flush_seconds.clone());
            let mut add = |name: &str, help: &str, family: &Family<ByPartition, Gauge>| {
                registry.register(name, help, family.clone());
            };
            add("partition_lag_records", "Records that are not durable in facts yet", &own.lag);
            add("partition_next_offset", "The next offset to fold", &own.next_offset);
            add("partition_counters", "Counters in memory", &own.counters);
            add("partition_stopped", "1: stopped, an operator must look", &own.stopped);
        });
        own
    }

    pub(crate) fn forget(&self, partition: Partition) {
        for family in [&self.lag, &self.next_offset, &self.counters, &self.stopped] {
            family.remove(&of(partition));
        }
    }

    pub(crate) fn flushed(&self, took: Duration, rows: usize, dead_letters: usize) {
        self.flush_seconds.observe(took.as_secs_f64());
        self.rows_written.inc_by(rows as u64);
        self.dead_letters.inc_by(dead_letters as u64);
    }
}
