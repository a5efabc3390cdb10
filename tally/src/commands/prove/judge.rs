//! The judgement: every total that a reader shows, against the truth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tally_proto::parse_rfc3339;
use tally_service::clock::{SharedClock, sleep};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::senders::Truth;

/// How long totals may take to hold as of now.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(120);

const IN_FLIGHT: usize = 32;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) counters: usize,
    pub(super) requests: u64,
    pub(super) events: u64,
    /// Requests in doubt, and how many of them the log has.
    pub(super) doubts: usize,
    pub(super) doubts_taken: usize,
    /// The sum of all that is missing, and of all that is too much.
    pub(super) missing: i64,
    pub(super) surplus: i64,
    pub(super) wrong: Vec<String>,
    /// How long it took until totals held as of the end.
    pub(super) caught_up_after: Duration,
}

pub(super) async fn compare(
    reader: String,
    truth: &Truth,
    clock: &SharedClock,
) -> anyhow::Result<Compared> {
    let mut compared = Compared {
        requests: truth.requests,
        events: truth.events,
        doubts: truth.doubts.len(),
        caught_up_after: wait_until_caught_up(&reader, clock).await?,
        ..Compared::default()
    };
    let mut expected = truth.totals.clone();
    for doubt in &truth.doubts {
        for subject in doubt.deltas.keys().chain([&doubt.witness]) {
            expected.entry(subject.clone()).or_default();
        }
    }
    let found = read_all(&reader, expected.keys().cloned().collect()).await?;
    for doubt in &truth.doubts {
        let acknowledged = truth.totals.get(&doubt.witness).copied().unwrap_or(0);
        if found.get(&doubt.witness).copied().unwrap_or(0) == acknowledged + 1 {
            compared.doubts_taken += 1;
            *expected.entry(doubt.witness.clone()).or_default() += 1;
            for (subject, delta) in &doubt.deltas {
                *expected.entry(subject.clone()).or_default() += delta;
            }
        }
    }
    compared.counters = expected.len();
    for (subject, expected) in &expected {
        let total = found.get(subject).copied().unwrap_or(0);
        let drift = total - expected;
        compared.surplus += drift.max(0);
        compared.missing += (-drift).max(0);
        if drift != 0 {
            compared.wrong.push(format!("{subject}: {total}, in truth {expected}"));
        }
    }
    Ok(compared)
}

async fn wait_until_caught_up(reader: &str, clock: &SharedClock) -> anyhow::Result<Duration> {
    let (asked_ms, started) = (clock.unix_ms(), clock.monotonic());
    loop {
        let answer = read(&reqwest::Client::new(), reader, "witness").await;
        let as_of = answer.as_ref().ok().and_then(|answer| answer["as_of"].as_str());
        if as_of.and_then(parse_rfc3339).is_some_and(|as_of| as_of >= asked_ms) {
            return Ok(clock.monotonic().saturating_sub(started));
        }
        let waited = clock.monotonic().saturating_sub(started);
        ensure!(waited < CAUGHT_UP_WITHIN, "totals do not catch up: the reader says {answer:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn read(http: &reqwest::Client, reader: &str, subject: &str) -> anyhow::Result<Value> {
    let answer = http.get(format!("{reader}/v1/counters/view/{subject}")).send().await?;
    Ok(answer.error_for_status()?.json().await?)
}

async fn read_all(reader: &str, subjects: Vec<String>) -> anyhow::Result<BTreeMap<String, i64>> {
    let (http, permits) = (reqwest::Client::new(), Arc::new(Semaphore::new(IN_FLIGHT)));
    let mut reads = JoinSet::new();
    for subject in subjects {
        let (http, permits, reader) = (http.clone(), permits.clone(), reader.to_owned());
        reads.spawn(async move {
            let _permit = permits.acquire().await;
            let answer = read(&http, &reader, &subject).await?;
            let total = answer["total"].as_str().context("no total")?.parse()?;
            anyhow::Ok((subject, total))
        });
    }
    reads.join_all().await.into_iter().collect()
}
