//! Senders: they know the truth of what they sent, also where an answer was lost.
//!
//! Each sends to one partition, one request in flight. A request without an answer is in doubt: the
//! log has it once or not at all. Its witness tells: a counter that every request of a sender
//! raises by one, and that is changed for a new one after each doubt.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::StatusCode;
use tally_proto::route;
use tally_service::clock::{SharedClock, interval, sleep};
use tokio::task::JoinHandle;

use crate::cli::ProveArgs;

/// From one request of a sender to the next, and events of one request at most: who had to wait
/// sends more at once.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_EVENTS: u64 = 5_000;

/// Counters of each partition.
const COUNTERS: u64 = 400;

/// What is known of all totals.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    /// Sums of acknowledged deltas, by subject.
    pub(super) totals: BTreeMap<String, i64>,
    /// Requests that nobody answered.
    pub(super) doubts: Vec<Doubt>,
    /// Requests and events that were acknowledged.
    pub(super) requests: u64,
    pub(super) events: u64,
}

/// A request that nobody answered.
#[derive(Debug, Clone)]
pub(super) struct Doubt {
    /// The subject that it raised by one.
    pub(super) witness: String,
    /// What it would add.
    pub(super) deltas: BTreeMap<String, i64>,
}

pub(super) struct Senders {
    url: String,
    partitions: u32,
    /// Events a second of one sender.
    rate: u64,
    clock: SharedClock,
    stopped: AtomicBool,
    acknowledged: AtomicU64,
    truth: Mutex<Truth>,
}

impl Senders {
    pub(super) fn new(args: &ProveArgs, partitions: u32, url: String, clock: SharedClock) -> Self {
        Senders {
            url,
            partitions,
            rate: (args.rate / u64::from(partitions)).max(1),
            clock,
            stopped: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            truth: Mutex::default(),
        }
    }

    pub(super) fn start(self: Arc<Self>) -> Vec<JoinHandle<()>> {
        (0..self.partitions).map(|partition| tokio::spawn(self.clone().send(partition))).collect()
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn truth(&self) -> Truth {
        self.truth.lock().clone()
    }

    /// A subject whose events go to the partition.
    fn subject(&self, partition: u32, name: &str) -> String {
        let named = |n: u64| format!("{name}-{n}");
        let there = |s: &String| route("default", s, 0, self.partitions).0 == partition;
        (0..).map(named).find(there).unwrap_or_default()
    }

    async fn send(self: Arc<Self>, partition: u32) {
        let Ok(http) = reqwest::Client::builder().timeout(Duration::from_secs(15)).build() else {
            return;
        };
        let mut rng = StdRng::seed_from_u64(u64::from(partition));
        let subject = |n| self.subject(partition, &format!("prove:{partition}:{n}"));
        let subjects: Vec<String> = (0..COUNTERS).map(subject).collect();
        let mut witnesses = 0;
        let mut witness = self.subject(partition, &format!("witness:{partition}:0"));
        let mut tick = interval(PAUSE);
        let mut sent_at = self.clock.monotonic();
        let mut repeated = None;
        while !self.stopped.load(Ordering::Relaxed) {
            tick.tick().await;
            let events = repeated.take().unwrap_or_else(|| {
                let now = self.clock.monotonic();
                let since = now.saturating_sub(std::mem::replace(&mut sent_at, now));
                self.events(&subjects, &mut rng, since)
            });
            let body = body(&witness, &events);
            let sent = http.post(format!("{}/v1/events", self.url));
            let sent = sent.header("content-type", "application/x-ndjson").body(body).send().await;
            let is_nothing_taken = match &sent {
                Ok(answer) if answer.status() == StatusCode::OK => {
                    self.book(&witness, &events);
                    continue;
                }
                Ok(answer) => answer.status() == StatusCode::TOO_MANY_REQUESTS,
                Err(error) => error.is_connect(), // nobody was there
            };
            if !is_nothing_taken {
                self.truth.lock().doubts.push(Doubt { witness, deltas: sums(&events) });
                witnesses += 1;
                witness = self.subject(partition, &format!("witness:{partition}:{witnesses}"));
            }
            repeated = Some(events); // sent again, as clients do
            sleep(PAUSE).await;
        }
    }

    /// The events of one request; the first counters are asked for most.
    fn events<'s>(
        &self,
        subjects: &'s [String],
        rng: &mut StdRng,
        since: Duration,
    ) -> Vec<(&'s str, i64)> {
        let due = (self.rate as f64 * since.as_secs_f64()) as u64;
        let event = |_| {
            let most = rng.random_range(1..=subjects.len());
            let subject = subjects[rng.random_range(0..most)].as_str();
            (subject, [1, 1, 2, 5, -2][rng.random_range(0..5)])
        };
        (0..due.clamp(1, MOST_EVENTS)).map(event).collect()
    }

    fn book(&self, witness: &str, events: &[(&str, i64)]) {
        let mut truth = self.truth.lock();
        truth.requests += 1;
        let all = events.len() as u64 + 1; // the witness's, too
        truth.events += all;
        self.acknowledged.fetch_add(all, Ordering::Relaxed);
        *truth.totals.entry(witness.to_owned()).or_default() += 1;
        for (subject, delta) in sums(events) {
            *truth.totals.entry(subject).or_default() += delta;
        }
    }
}

fn sums(events: &[(&str, i64)]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (subject, delta) in events {
        *sums.entry((*subject).to_owned()).or_default() += delta;
    }
    sums
}

/// The witness, and the events.
fn body(witness: &str, events: &[(&str, i64)]) -> String {
    let mut body = format!("{{\"kind\":\"view\",\"subject\":\"{witness}\"}}\n");
    for (subject, delta) in events {
        let event = format_args!(r#"{{"kind":"view","subject":"{subject}","delta":{delta}}}"#);
        writeln!(body, "{event}").expect("text takes text");
    }
    body
}
