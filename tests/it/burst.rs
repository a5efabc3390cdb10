//! A burst: one counter of many goes viral. It takes more partitions, and every total stays exact.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{Process, get, post_until_answered, unix_ms, wait_until};

/// One number of `/metrics`.
async fn metric(url: &str, name: &str) -> f64 {
    let text = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name}")).split(' ').nth(1).unwrap().parse().unwrap()
}

/// How many partitions a counter has facts in, and its total.
async fn shards(url: &str, counter: &str) -> (usize, String) {
    let answer =
        get(&reqwest::Client::new(), &format!("{url}/v1/counters/{counter}?shards=true")).await;
    (answer["shards"].as_array().unwrap().len(), answer["total"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viral_counter_takes_more_partitions_and_stays_exact() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let settings = BTreeMap::from([
        ("TALLY__DATA_DIR".to_owned(), folder.path().display().to_string()),
        ("TALLY__INGEST__SLOT_RATE".to_owned(), "200".to_owned()),
    ]);
    let tally = Process::start(&["serve"], &settings).await;
    let client = reqwest::Client::new();
    let url = || tally.url.clone();
    let cold: String =
        (0..5_000).map(|n| format!("{{\"kind\":\"view\",\"subject\":\"cold:{n}\"}}\n")).collect();
    post_until_answered(&client, url, &cold).await;
    assert_eq!(metric(&tally.url, "tally_ingest_widest_spread").await, 1.0);
    let viral = "{\"kind\":\"view\",\"subject\":\"viral\"}\n".repeat(100);
    let (started, mut sent) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(3) {
        post_until_answered(&client, url, &viral).await;
        sent += 100;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(metric(&tally.url, "tally_ingest_widest_spread").await >= 4.0);
    assert_eq!(metric(&tally.url, "tally_ingest_spread_counters").await, 1.0);
    wait_until(&tally.url, "view/viral", unix_ms()).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await; // what is cached is older than it may be
    let (partitions, total) = shards(&tally.url, "view/viral").await;
    assert_eq!(total, sent.to_string());
    assert!(partitions >= 3, "{partitions}");
    for n in (0..5_000).step_by(500) {
        assert_eq!(shards(&tally.url, &format!("view/cold:{n}")).await, (1, "1".to_owned()));
    }
    assert!(tally.stop().await.success());
}
