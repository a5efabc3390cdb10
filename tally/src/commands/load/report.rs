//! What a load measured.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Answered;
use crate::cli::LoadArgs;

/// Latencies up to this are told apart, in microseconds.
const MOST_MICROS: u64 = 600_000_000;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    asked_events_per_second: u64,
    accepted_events_per_second: f64,
    accepted_events: u64,
    shed_events: u64,
    failed_events: u64,
    requests_by_status: BTreeMap<u16, u64>,
    latency_ms: BTreeMap<&'static str, f64>,
    seconds: f64,
    #[serde(skip)]
    latencies: Histogram<u64>,
}

impl Report {
    pub(super) fn new(args: &LoadArgs) -> Self {
        Report {
            asked_events_per_second: args.rate,
            accepted_events_per_second: 0.0,
            accepted_events: 0,
            shed_events: 0,
            failed_events: 0,
            requests_by_status: BTreeMap::new(),
            latency_ms: BTreeMap::new(),
            seconds: 0.0,
            latencies: Histogram::new_with_bounds(1, MOST_MICROS, 3)
                .expect("bounds and precision are constants that fit"),
        }
    }

    pub(super) fn add(&mut self, answer: &Answered) {
        *self.requests_by_status.entry(answer.status).or_default() += 1;
        match answer.status {
            200 => self.accepted_events += answer.events,
            429 => self.shed_events += answer.events,
            _ => self.failed_events += answer.events,
        }
        let micros = u64::try_from(answer.latency.as_micros()).unwrap_or(MOST_MICROS);
        self.latencies.saturating_record(micros.clamp(1, MOST_MICROS));
    }

    pub(super) fn finish(&mut self, took: Duration) {
        self.seconds = took.as_secs_f64();
        self.accepted_events_per_second = self.accepted_events as f64 / self.seconds.max(1e-9);
        let at = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64 / 1_000.0;
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
        self.latency_ms = quantiles.map(|(name, quantile)| (name, at(quantile))).into();
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![format!(
            "{} events accepted in {:.1} s: {:.0} a second (asked for {})",
            self.accepted_events,
            self.seconds,
            self.accepted_events_per_second,
            self.asked_events_per_second
        )];
        if self.shed_events + self.failed_events > 0 {
            lines.push(format!(
                "{} shed with 429, {} failed; requests by status {:?}",
                self.shed_events, self.failed_events, self.requests_by_status
            ));
        }
        let latency = |name: &str| format!("{name} {:.1}", self.latency_ms[name]);
        let quantiles = ["p50", "p90", "p99", "p999", "max"].map(latency).join("  ");
        lines.push(format!("latency of a request, waiting included, in ms: {quantiles}"));
        lines.join("\n")
    }
}
