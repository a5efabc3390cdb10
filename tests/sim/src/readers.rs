//! Who reads: the real reader behind its HTTP router. Every answer is judged.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use tally_proto::{AsOf, CounterId, Epoch, Kinds, Partition, parse_rfc3339};
use tally_reader::{Reader, ReaderSettings};
use tally_service::clock::SharedClock;
use tally_service::health::Health;
use tally_service::metrics::Metrics;
use tally_service::stopper::Stopper;
use tally_store::{FactStore, day_of};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::dice::Dice;
use crate::log::SimLog;
use crate::oracle::Oracle;
use crate::producers::ACTORS;

/// A reader, and who asks it. Clones share it.
#[derive(Clone)]
pub(crate) struct Readers {
    router: Router,
    store: Arc<dyn FactStore>,
    clock: SharedClock,
    oracle: Oracle,
    partitions: u32,
}

impl Readers {
    /// Starts a reader.
    pub(crate) fn start(
        store: Arc<dyn FactStore>,
        (partitions, epoch): (u32, Epoch),
        kinds: Arc<Kinds>,
        clock: SharedClock,
        oracle: Oracle,
    ) -> Self {
        let reader = Arc::new(Reader::new(tally_reader::Context {
            store: store.clone(),
            partitions,
            epoch,
            kinds,
            settings: ReaderSettings { reduce_interval_ms: 200, cache_subjects: 100 },
            clock: clock.clone(),
            health: Health::default(),
            metrics: Metrics::default(),
        }));
        let watching = reader.clone();
        tokio::spawn(async move { watching.watch(&Stopper::new()).await });
        Readers { router: tally_reader::router(reader), store, clock, oracle, partitions }
    }

    /// Reads now and then.
    pub(crate) async fn read_often(self, dice: Dice, log: SimLog) {
        loop {
            sleep(dice.millis(50, 600)).await;
            let subject = *dice.pick(&["video:1", "video:2", "a", "b"]);
            let kind = *dice.pick(&["view", "reply", "like"]);
            let counter = CounterId::new("default", kind, subject).expect("a name");
            self.read(&counter).await;
            self.ask(&dice, &log).await;
        }
    }

    /// Reads one counter, and judges the answer; the total, if there is one.
    async fn read(&self, counter: &CounterId) -> Option<i128> {
        let uri = format!(
            "/v1/counters/{}/{}?shards=true&namespace={}",
            counter.kind, counter.subject.subject, counter.subject.namespace
        );
        let request = Request::get(uri).body(Body::empty()).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        if !response.status().is_success() {
            return None;
        }
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let at_ms = answer["as_of"].as_str().and_then(parse_rfc3339);
        let shards = answer["shards"].as_array().cloned().unwrap_or_default();
        let mut sum = 0i128;
        for partition in (0..self.partitions).map(Partition) {
            let found = shards.iter().find(|shard| shard["partition"] == partition.0);
            let shard = found.map(|shard| {
                let as_of = shard["as_of"].as_u64().expect("an as-of");
                let partial = shard["partial"].as_str().and_then(|text| text.parse().ok());
                (AsOf(as_of), partial.expect("a partial"))
            });
            sum += shard.map_or(0, |(_, partial)| i128::from(partial));
            self.oracle.on_shard(counter, partition, shard, at_ms);
        }
        let total = answer["total"].as_str().and_then(|text| text.parse().ok());
        if total != Some(sum) {
            self.oracle.accuse(format!("{counter}: total {total:?} of shards that sum to {sum}"));
        }
        total
    }

    /// At the end, every total is what the log says.
    pub(crate) async fn judge_totals(&self, log: &SimLog) {
        let mut counters: Vec<CounterId> = Vec::new();
        for partition in log.partitions() {
            counters.extend(log.truth(partition, |t| t.counters().cloned().collect::<Vec<_>>()));
        }
        counters.sort();
        counters.dedup();
        sleep(Duration::from_millis(500)).await; // what is cached is older than it may be
        for counter in counters {
            let total = self.read(&counter).await;
            let end = AsOf(u64::MAX);
            let partial = |p| i128::from(self.oracle.moved(&counter, p, end));
            let says: i128 = log.partitions().map(partial).sum();
            if total != Some(says) {
                self.oracle.accuse(format!("{counter} is read as {total:?}, the log says {says}"));
            }
        }
    }

    /// Whether an actor is in, by the reader's answer.
    async fn is_in(&self, counter: &CounterId, actor: &str) -> Option<bool> {
        let subject = &counter.subject;
        let uri = format!(
            "/v1/actors/{actor}/{}?subjects={}&namespace={}",
            counter.kind, subject.subject, subject.namespace
        );
        let request = Request::get(uri).body(Body::empty()).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let is_ok = response.status().is_success();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        is_ok.then(|| answer[&*subject.subject].as_bool().expect("yes or no"))
    }

    /// Asks whether somebody is in: it must have been so at some time.
    async fn ask(&self, dice: &Dice, log: &SimLog) {
        let subject = *dice.pick(&["video:1", "video:2", "a"]);
        let (counter, actor) =
            (CounterId::new("default", "like", subject).expect("a name"), *dice.pick(ACTORS));
        let Some(is_in) = self.is_in(&counter, actor).await else { return };
        let home = self.oracle.home(&counter, actor);
        if !log.truth(home, |truth| truth.ever_in(&counter, actor, is_in)) {
            self.oracle.accuse(format!("a reader says {is_in} of {actor} in {counter}"));
        }
    }

    /// At the end, everybody is where the log says.
    pub(crate) async fn judge_actors(&self, log: &SimLog, partition: Partition) {
        let end = AsOf(u64::MAX);
        for (counter, actors) in log.truth(partition, |truth| truth.actors()) {
            let state = log.truth(partition, |truth| truth.set(&counter, end));
            for actor in actors {
                let says = state.members.contains(&actor);
                let is_in = self.is_in(&counter, &actor).await;
                if is_in != Some(says) {
                    self.oracle.accuse(format!(
                        "{actor} is read as {is_in:?} in {counter}, the log says {says}"
                    ));
                }
            }
        }
    }

    /// At the end, what could not be counted has been set aside, and nothing else.
    pub(crate) async fn judge_dead_letters(&self, log: &SimLog, partition: Partition) {
        let today = day_of(self.clock.unix_ms());
        let mut letters = Vec::new();
        for day in today - 1..=today {
            let more = self.store.read_dead_letters(partition, day, usize::MAX).await;
            letters.extend(more.unwrap_or_default());
        }
        let found: Vec<_> =
            letters.iter().map(|l| ((l.offset, l.index), l.code.to_string())).collect();
        let expected: Vec<_> = log.truth(partition, |truth| {
            truth.dead_letters().iter().map(|(place, code)| (*place, code.clone())).collect()
        });
        if found != expected {
            self.oracle.accuse(format!(
                "dead letters of partition {partition} are {found:?}, the log says {expected:?}"
            ));
        }
    }
}
