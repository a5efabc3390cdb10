//! A topic deleted and created anew under a running layout: refused, nothing counted wrongly.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use serde_json::Value;

use crate::support::{Process, Site, unix_ms, wait_until};

async fn total(reader: &Process, subject: &str) -> String {
    let url = format!("{}/v1/counters/view/{subject}", reader.url);
    let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    answer["total"].as_str().unwrap().to_owned()
}

async fn replace_topic(site: &Site) {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", &site.settings["TALLY__KAFKA__BROKERS"])
        .create()
        .unwrap();
    let deleted = admin.delete_topics(&[site.topic()], &AdminOptions::new()).await.unwrap();
    deleted.into_iter().for_each(|topic| drop(topic.unwrap()));
    for _ in 0..40 {
        // Until the topic is gone, setup finds it in its way.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (status, log) = Process::run(&["setup"], &site.settings).await;
        if status.success() && log.contains(": created") {
            return;
        }
    }
    panic!("the topic did not come back");
}

/// Sends views of one subject, one record each.
async fn send(ingest: &Process, subject: &str, count: usize) {
    let http = reqwest::Client::new();
    for _ in 0..count {
        let url = format!("{}/v1/counters/view/{subject}:add", ingest.url);
        http.post(url).send().await.unwrap().error_for_status().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_topic_stops_its_partitions_and_nothing_is_counted_wrongly() {
    let site = Site::new("replaced").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let aggregator = site.assigned_aggregator().await;
    send(&ingest, "a", 20).await;
    wait_until(&reader.url, "view/shared:0", unix_ms()).await;
    assert_eq!(total(&reader, "a").await, "20");
    assert!(ingest.stop().await.success());

    replace_topic(&site).await;
    // More records than the old log had, so that the old offset exists again.
    let ingest = site.ingest().await;
    send(&ingest, "a", 40).await;
    aggregator
        .wait_for_message(|line| {
            line["message"] == "partition stopped, an operator must look"
                && line["why"].as_str().is_some_and(|why| why.contains("replaced or truncated"))
        })
        .await;
    assert_eq!(total(&reader, "a").await, "20", "nothing of the new log was added");
    let ready = reqwest::get(format!("{}/readyz", aggregator.url)).await.unwrap();
    assert_eq!(ready.status(), 503);

    // A new process finds the same.
    assert!(aggregator.stop().await.success());
    let aggregator = site.assigned_aggregator().await;
    aggregator
        .wait_for_message(|line| line["message"] == "partition stopped, an operator must look")
        .await;
    assert_eq!(total(&reader, "a").await, "20");

    // The operator goes on with it: what was counted stays, what the new log holds is added.
    assert!(ingest.stop().await.success());
    let next = ["epoch", "next", "--from", "start"];
    let (status, said) = Process::run(&next, &site.settings).await;
    assert!(status.success() && said.contains("epoch 2 is in force"), "{said}");
    aggregator
        .wait_for_message(|line| line["why"].as_str().is_some_and(|why| why.contains("epoch 2")))
        .await;
    assert!(aggregator.stop().await.success() && reader.stop().await.success());
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let _aggregator = site.assigned_aggregator().await;
    send(&ingest, "a", 5).await;
    wait_until(&reader.url, "view/shared:0", unix_ms()).await;
    assert_eq!(total(&reader, "a").await, "65");
}
