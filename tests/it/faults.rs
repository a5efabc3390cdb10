//! Real faults on real Kafka and Cassandra: kills, joins, freezes, outages.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{Load, Outage, Process, Site};

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_after_ten_kills_of_the_aggregator() {
    let site = Site::new("kills").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let mut rng = StdRng::seed_from_u64(11);
    let mut load = Load::new(2);
    for _ in 0..10 {
        let aggregator = site.assigned_aggregator().await;
        load.send_for(&ingest.url, Duration::from_millis(rng.random_range(100..1_800))).await;
        aggregator.kill();
        load.send_for(&ingest.url, Duration::from_millis(100)).await;
    }
    let aggregator = site.assigned_aggregator().await;
    load.check(&reader.url).await;
    assert!(load.acknowledged() > 5_000);
    for process in [aggregator, ingest, reader] {
        assert!(process.stop().await.success());
    }
}

/// How often an aggregator was given partitions. (A cooperative assignment may add none: a member
/// is told of it before the others give up what it will get.)
fn assignments(process: &Process) -> usize {
    let told = process.messages("partitions assigned");
    told.iter().filter(|line| line["partitions"] != "").count()
}

/// Waits until an aggregator has been given partitions after the `past` first times.
async fn wait_assigned(process: &Process, past: usize) {
    for _ in 0..600 {
        if assignments(process) > past {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no partitions: {}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_while_a_second_aggregator_joins_and_leaves() {
    let site = Site::new("joins").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let mut load = Load::new(3);
    let first = site.group_aggregator("first").await;
    wait_assigned(&first, 0).await;
    load.send_for(&ingest.url, Duration::from_secs(1)).await;
    let second = site.group_aggregator("second").await;
    let joined = async {
        wait_assigned(&second, 0).await;
        assert!(!first.messages("partitions revoked").is_empty(), "the first gave some up");
    };
    tokio::join!(joined, load.send_for(&ingest.url, Duration::from_secs(8)));
    let assigned_before = assignments(&first);
    assert!(second.stop().await.success());
    load.send_for(&ingest.url, Duration::from_secs(1)).await;
    wait_assigned(&first, assigned_before).await;
    load.check(&reader.url).await;
    assert!(load.acknowledged() > 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_after_an_aggregator_froze_and_came_back_as_a_zombie() {
    let site = Site::new("zombie").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let mut load = Load::new(4);
    let zombie = site.group_aggregator("zombie").await;
    wait_assigned(&zombie, 0).await;
    load.send_for(&ingest.url, Duration::from_secs(2)).await;
    zombie.signal("STOP");
    let heir = site.group_aggregator("heir").await;
    let moved = wait_assigned(&heir, 0);
    tokio::join!(moved, load.send_for(&ingest.url, Duration::from_secs(10)));
    load.check(&reader.url).await; // the heir has folded what the zombie held
    zombie.signal("CONT");
    load.send_for(&ingest.url, Duration::from_secs(4)).await;
    load.check(&reader.url).await;
    assert!(load.acknowledged() > 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_after_the_store_was_away_for_30_s() {
    let site = Site::for_outage("store_away").await;
    let _alone = site.servers.alone().await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let aggregator = site.assigned_aggregator().await;
    let mut load = Load::new(5);
    load.send_for(&ingest.url, Duration::from_secs(2)).await;
    load.check(&reader.url).await;
    site.servers.take(Outage::Node).await;
    load.send_for(&ingest.url, Duration::from_secs(30)).await; // ingest needs no store
    let ready = reqwest::get(format!("{}/readyz", aggregator.url)).await.unwrap();
    assert_eq!(ready.status(), 503);
    assert!(ready.text().await.unwrap().contains("store"), "it says what it waits for");
    let stale = reqwest::get(format!("{}/v1/counters/view/shared:0", reader.url)).await.unwrap();
    assert!(stale.text().await.unwrap().contains(r#""stale":true"#), "old totals are marked");
    site.servers.give_back(Outage::Node).await;
    load.check(&reader.url).await;
    assert!(load.acknowledged() > 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_after_the_broker_was_away_for_30_s() {
    let site = Site::for_outage("broker_away").await;
    let _alone = site.servers.alone().await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let aggregator = site.assigned_aggregator().await;
    let mut load = Load::new(6);
    load.send_for(&ingest.url, Duration::from_secs(2)).await;
    load.check(&reader.url).await;
    site.servers.take(Outage::Broker).await;
    load.send_for(&ingest.url, Duration::from_secs(30)).await;
    for process in [&ingest, &aggregator] {
        let ready = reqwest::get(format!("{}/readyz", process.url)).await.unwrap();
        assert!(ready.text().await.unwrap().contains("log"), "it says what it waits for");
    }
    site.servers.give_back(Outage::Broker).await;
    load.send_for(&ingest.url, Duration::from_secs(5)).await;
    load.check(&reader.url).await;
    assert!(load.acknowledged() > 2_000);
}
