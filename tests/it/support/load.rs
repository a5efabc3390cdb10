//! A load whose truth is known: what was acknowledged, and what is in doubt.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{get, unix_ms, wait_until};

/// Sends events and remembers what became of them.
pub(crate) struct Load {
    http: reqwest::Client,
    rng: StdRng,
    /// By subject: the sum of acknowledged deltas.
    acknowledged: BTreeMap<String, i64>,
    /// Subjects of requests that nobody answered: their events are in the log at most once.
    in_doubt: BTreeMap<String, i64>,
    requests: u64,
}

/// Events of one request.
const BATCH: u64 = 50;

impl Load {
    pub(crate) fn new(seed: u64) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(40)).build().unwrap();
        Load {
            http,
            rng: StdRng::seed_from_u64(seed),
            acknowledged: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            requests: 0,
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// How many events were acknowledged.
    pub(crate) fn acknowledged(&self) -> i64 {
        self.acknowledged.values().sum()
    }

    /// Sends one batch: views of shared subjects, and some of a subject that is the batch's own.
    pub(crate) async fn send(&mut self, url: &str) -> bool {
        self.requests += 1;
        let own = format!("own:{}", self.requests);
        let mut shared: BTreeMap<String, i64> = BTreeMap::new();
        let mut body = String::new();
        for n in 0..BATCH {
            let hot = self.rng.random_bool(0.5);
            let subject = if n % 10 == 0 {
                own.clone()
            } else {
                format!("shared:{}", self.rng.random_range(0..if hot { 3 } else { 300 }))
            };
            let delta = self.rng.random_range(-2i64..=5);
            let delta = if delta == 0 { 1 } else { delta };
            writeln!(body, r#"{{"kind":"view","subject":"{subject}","delta":{delta}}}"#).unwrap();
            *shared.entry(subject).or_default() += delta;
        }
        let sent = self
            .http
            .post(format!("{url}/v1/events"))
            .header("content-type", "application/x-ndjson")
            .body(body)
            .send()
            .await;
        match sent {
            Ok(response) if response.status() == 200 => {
                for (subject, delta) in shared {
                    *self.acknowledged.entry(subject).or_default() += delta;
                }
                true
            }
            Ok(response) if response.status() == 429 => false, // nothing was taken
            // An answer that is none: shared subjects can no longer be compared exactly.
            Ok(_) | Err(_) => {
                self.in_doubt.extend(shared);
                false
            }
        }
    }

    /// Sends batches for a time.
    pub(crate) async fn send_for(&mut self, url: &str, time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            if !self.send(url).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Waits until the reader's totals hold as of now, and compares all of them with the truth.
    pub(crate) async fn check(&self, reader: &str) {
        let asked_ms = unix_ms();
        wait_until(reader, "view/shared:0", asked_ms).await;
        let mut wrong = Vec::new();
        for (subject, expected) in &self.acknowledged {
            let total = self.total(reader, subject).await;
            let doubt = self.in_doubt.contains_key(subject);
            if doubt && subject.starts_with("shared:") {
                continue; // other requests' doubts fell on it: its own subjects tell
            }
            if total != *expected {
                wrong.push(format!("{subject}: {total}, acknowledged {expected}"));
            }
        }
        for (subject, delta) in self.in_doubt.iter().filter(|(s, _)| s.starts_with("own:")) {
            let total = self.total(reader, subject).await;
            if total != 0 && total != *delta {
                wrong.push(format!("{subject}: {total}, in doubt was {delta}"));
            }
        }
        assert!(wrong.is_empty(), "{} wrong totals: {wrong:#?}", wrong.len());
    }

    async fn total(&self, reader: &str, subject: &str) -> i64 {
        let answer = get(&self.http, &format!("{reader}/v1/counters/view/{subject}")).await;
        answer["total"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    }
}
