//! Resets: a counter begins anew, at once, everywhere, and what is counted afterwards is exact.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::Value;

use crate::support::{Process, Site, get, post_until_answered, unix_ms, wait_until};

const ACTORS: usize = 900;

/// Likes of many actors, and views with ids, so that the counters lie in many partitions.
fn events(round: usize, likes: usize, views: usize) -> String {
    let like = |n| format!("{{\"kind\":\"like\",\"subject\":\"anew\",\"actor\":\"user:{n}\"}}\n");
    let view = |n| format!("{{\"kind\":\"view\",\"subject\":\"anew\",\"id\":\"{round}-{n}\"}}\n");
    (0..likes).map(like).chain((0..views).map(view)).collect()
}

async fn reset(ingest: &str, kind: &str) {
    let client = Client::new();
    for _ in 0..100 {
        let url = format!("{ingest}/v1/counters/{kind}/anew");
        let asked = if kind == "view" { client.delete(url) } else { client.post(url + ":reset") };
        if asked.send().await.is_ok_and(|answer| answer.status() == StatusCode::OK) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nobody resets");
}

/// Waits until all that was sent is counted, and compares.
async fn judge(reader: &str, likes: usize, views: usize) {
    wait_until(reader, "view/anew", unix_ms()).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // what is cached is older than it may be
    let client = Client::new();
    for (kind, total) in [("like", likes), ("view", views)] {
        let answer = get(&client, &format!("{reader}/v1/counters/{kind}/anew?shards=true")).await;
        assert_eq!(answer["total"], total.to_string(), "{answer}");
    }
    let page = get(&client, &format!("{reader}/v1/counters/like/anew/actors?limit=1000")).await;
    assert_eq!(page["actors"].as_array().unwrap().len(), likes, "{page}");
    for (n, is_in) in [(0, likes > 0), (likes, false), (ACTORS - 1, likes == ACTORS)] {
        let url = format!("{reader}/v1/actors/user:{n}/like?subjects=anew");
        assert_eq!(get(&client, &url).await["anew"], Value::Bool(is_in), "user:{n} of {likes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_begins_anew_through_a_kill_of_the_whole_process() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let settings =
        BTreeMap::from([("TALLY__DATA_DIR".to_owned(), folder.path().display().to_string())]);
    let mut tally = Process::start(&["serve"], &settings).await;
    let client = Client::new();
    for (round, (likes, views)) in [(ACTORS, 700), (40, 30), (0, 0), (ACTORS, 5)].iter().enumerate()
    {
        post_until_answered(&client, || tally.url.clone(), &events(round, *likes, *views)).await;
        judge(&tally.url, *likes, *views).await;
        reset(&tally.url, "like").await;
        reset(&tally.url, "view").await;
        // Right after the answer, and before anybody has folded it.
        post_until_answered(&client, || tally.url.clone(), &events(round + 10, 7, 3)).await;
        tally.kill();
        tally = Process::start(&["serve"], &settings).await;
        judge(&tally.url, 7, 3).await;
        reset(&tally.url, "like").await;
        reset(&tally.url, "view").await;
    }
    judge(&tally.url, 0, 0).await;
    assert!(tally.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_begins_anew_on_kafka_and_cassandra_through_kills() {
    let site = Site::new("resets").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let client = Client::new();
    let mut aggregator = site.assigned_aggregator().await;
    for round in 0..3 {
        post_until_answered(&client, || ingest.url.clone(), &events(round, ACTORS, 700)).await;
        aggregator.kill();
        aggregator = site.assigned_aggregator().await;
        reset(&ingest.url, "like").await;
        reset(&ingest.url, "view").await;
        post_until_answered(&client, || ingest.url.clone(), &events(round + 10, 7, 3)).await;
        let zombie = aggregator;
        aggregator = site.assigned_aggregator().await; // two at once write the same
        judge(&reader.url, 7, 3).await;
        zombie.kill();
    }
    for process in [aggregator, ingest, reader] {
        assert!(process.stop().await.success());
    }
}
