//! Retries count once: whoever sends an event again with its id, after a lost answer, a 503 or a
//! crash, or for no reason at all, a total is the sum over distinct ids.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::support::{Mortal, Site, get, post_until_answered, unix_ms, wait_until};

/// An event: id, subject, delta.
type Event = (String, String, i64);

fn events(round: usize) -> Vec<Event> {
    let mut rng = StdRng::seed_from_u64(round as u64);
    let event = |n| {
        let most = if rng.random_bool(0.5) { 3 } else { 200 };
        let subject = format!("retried:{}", rng.random_range(0..most));
        (format!("{round}-{n}"), subject, [1, 1, 2, 5, -1][rng.random_range(0..5)])
    };
    (0..3_000).map(event).collect()
}

/// Sends each event three times, shuffled, in requests that are retried until they are answered.
async fn send(url: impl Fn() -> String, events: &[Event], seed: u64) {
    let mut sent: Vec<&Event> = events.iter().chain(events).chain(events).collect();
    sent.shuffle(&mut StdRng::seed_from_u64(seed));
    let client = reqwest::Client::new();
    for request in sent.chunks(100) {
        let line = |(id, subject, delta): &&Event| {
            let event = json!({ "kind": "view", "subject": subject, "delta": delta, "id": id });
            format!("{event}\n")
        };
        let body: String = request.iter().map(line).collect();
        post_until_answered(&client, &url, &body).await;
    }
}

/// Every total against the sum over distinct ids.
async fn judge(reader: &str, rounds: &[Vec<Event>]) {
    let mut truth: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, subject, delta) in rounds.iter().flatten() {
        *truth.entry(subject).or_default() += delta;
    }
    wait_until(reader, "view/retried:0", unix_ms()).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // what is cached is older than it may be
    let client = reqwest::Client::new();
    for (subject, total) in truth {
        let answer = get(&client, &format!("{reader}/v1/counters/view/{subject}")).await;
        assert_eq!(answer["total"], total.to_string(), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_counted_once_through_kills_of_the_whole_process() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let settings =
        BTreeMap::from([("TALLY__DATA_DIR".to_owned(), folder.path().display().to_string())]);
    let rounds: Vec<Vec<Event>> = (0..3).map(events).collect();
    let mut tally = Mortal::start(settings).await;
    for (seed, round) in (0..).zip(&rounds) {
        let url = tally.url.clone();
        let sending = send(|| url.lock().unwrap().clone(), round, seed);
        tally.live_through(sending, Duration::from_millis(700)).await;
        // Long after it was counted and the process has forgotten all: sent once more.
        send(|| tally.process.url.clone(), &round[..500], seed).await;
    }
    judge(&tally.process.url, &rounds).await;
    assert!(tally.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_counted_once_on_kafka_and_cassandra_through_kills() {
    let site = Site::new("retries").await;
    let reader = site.reader().await;
    let rounds: Vec<Vec<Event>> = (0..3).map(events).collect();
    for (seed, round) in (0..).zip(&rounds) {
        let (ingest, aggregator) = (site.ingest().await, site.assigned_aggregator().await);
        send(|| ingest.url.clone(), round, seed).await;
        aggregator.kill();
        let aggregator = site.assigned_aggregator().await;
        send(|| ingest.url.clone(), &round[..500], seed).await;
        aggregator.kill();
        ingest.kill();
    }
    let zombie = site.assigned_aggregator().await;
    let aggregator = site.assigned_aggregator().await; // two at once write the same
    judge(&reader.url, &rounds).await;
    for process in [zombie, aggregator, reader] {
        assert!(process.stop().await.success());
    }
}
