//! Records that others wrote: plain producers, JSON, garbage.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use serde_json::Value;

use crate::support::{Process, Site, root, unix_ms, wait_until};

/// Writes records with a plain librdkafka producer, partitioned by key as Kafka does.
fn produce(site: &Site, records: &[(&str, &[u8])]) {
    let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", &site.settings["TALLY__KAFKA__BROKERS"])
        .set("partitioner", "murmur2_random")
        .create()
        .unwrap();
    for (key, value) in records {
        producer.send(BaseRecord::to(site.topic()).key(*key).payload(*value)).ok().unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
}

async fn get(url: &str) -> Value {
    reqwest::get(url).await.unwrap().json().await.unwrap()
}

/// Waits until everything that was written until now is counted.
async fn settle(reader: &Process) {
    wait_until(&reader.url, "view/shared:0", unix_ms()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_a_plain_librdkafka_producer_is_counted() {
    let site = Site::new("librdkafka").await;
    let (aggregator, reader) = (site.assigned_aggregator().await, site.reader().await);
    produce(
        &site,
        &[
            ("video:1", br#"{"kind":"view","subject":"video:1"}"#),
            ("video:1", br#"[{"kind":"view","subject":"video:1","delta":4},{"kind":"reply","subject":"video:1"}]"#),
            ("eu/video:1", br#"{"namespace":"eu","kind":"view","subject":"video:1"}"#),
        ],
    );
    settle(&reader).await;
    let subject = get(&format!("{}/v1/subjects/video:1?shards=true", reader.url)).await;
    assert_eq!(subject["counters"]["view"]["total"], "5");
    assert_eq!(subject["counters"]["reply"]["total"], "1");
    let route = tally_proto::partition_of(b"video:1", 8);
    assert_eq!(subject["counters"]["view"]["shards"][0]["partition"], route.0, "murmur2 agrees");
    let eu = get(&format!("{}/v1/counters/view/video:1?namespace=eu", reader.url)).await;
    assert_eq!(eu["total"], "1");
    drop(aggregator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_like_that_came_to_another_partition_is_set_aside_with_the_right_key() {
    let site = Site::new("misrouted").await;
    let (aggregator, reader) = (site.assigned_aggregator().await, site.reader().await);
    let kinds = tally_proto::Kinds::built_in();
    let slot = tally_proto::slot_of("user:9", kinds.get("like").unwrap().spread);
    let right = tally_proto::route_key("default", "video:1", slot);
    let home = tally_proto::partition_of(right.as_bytes(), 8);
    let is_elsewhere = |key: &&str| tally_proto::partition_of(key.as_bytes(), 8) != home;
    let wrong = ["a", "b", "c"].into_iter().find(is_elsewhere).unwrap();
    let like = br#"{"kind":"like","subject":"video:1","actor":"user:9"}"#;
    produce(&site, &[(wrong, like), (&right, like), (&right, like)]);
    settle(&reader).await;
    let counter = get(&format!("{}/v1/counters/like/video:1", reader.url)).await;
    assert_eq!(counter["total"], "1");
    let letters = get(&format!("{}/v1/dead-letters", reader.url)).await;
    let letters = letters["dead_letters"].as_array().unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["code"], "misrouted");
    let reason = letters[0]["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("key the record with '{right}'")), "{reason}");
    drop(aggregator);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_a_plain_java_producer_is_counted() {
    let site = Site::new("java").await;
    let (aggregator, reader) = (site.assigned_aggregator().await, site.reader().await);
    let mut java = Command::new(root().join("deploy/local/cluster"))
        .args(["java", "org.apache.kafka.tools.ConsoleProducer"])
        .args(["--bootstrap-server", &site.settings["TALLY__KAFKA__BROKERS"]])
        .args(["--topic", site.topic(), "--reader-property", "parse.key=true"])
        .args(["--reader-property", "key.separator=|"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = java.stdin.take().unwrap();
    for _ in 0..10 {
        writeln!(lines, r#"video:7|{{"kind":"view","subject":"video:7","delta":2}}"#).unwrap();
    }
    drop(lines);
    assert!(java.wait().unwrap().success());
    settle(&reader).await;
    let counter = get(&format!("{}/v1/counters/view/video:7?shards=true", reader.url)).await;
    assert_eq!(counter["total"], "20");
    assert_eq!(counter["shards"][0]["partition"], tally_proto::partition_of(b"video:7", 8).0);
    drop(aggregator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_record_is_set_aside_and_the_rest_is_counted() {
    let site = Site::new("poisoned").await;
    let reader = site.reader().await;
    produce(
        &site,
        &[
            ("a", br#"{"kind":"view","subject":"a"}"#),
            ("a", b"\xff\xfe not JSON"),
            ("a", br#"[{"kind":"view","subject":"a"},{"kind":"vieww","subject":"a"}]"#),
            ("a", b""),
            ("a", br#"{"kind":"view","subject":"a"}"#),
        ],
    );
    // Twice, with a kill in between: a dead letter is kept once.
    site.assigned_aggregator().await.kill();
    let aggregator = site.assigned_aggregator().await;
    settle(&reader).await;
    let counter = get(&format!("{}/v1/counters/view/a", reader.url)).await;
    assert_eq!(counter["total"], "3");
    let letters = get(&format!("{}/v1/dead-letters", reader.url)).await;
    let codes: Vec<_> = letters["dead_letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|letter| letter["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["not_utf8", "unknown_kind", "empty"]);
    let (status, list) =
        Process::run(&["dead-letters", "list", "--url", &reader.url], &site.settings).await;
    assert!(status.success() && list.contains("vieww"), "{list}");
    drop(aggregator);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_marker_of_a_foreign_transaction_is_no_loss() {
    let site = Site::new("markers").await;
    let (aggregator, reader) = (site.assigned_aggregator().await, site.reader().await);
    let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", &site.settings["TALLY__KAFKA__BROKERS"])
        .set("transactional.id", site.topic())
        .set("partitioner", "murmur2_random")
        .create()
        .unwrap();
    let limit = Duration::from_secs(30);
    producer.init_transactions(limit).unwrap();
    for commit in [true, false, true] {
        producer.begin_transaction().unwrap();
        let value = r#"{"kind":"view","subject":"a"}"#;
        producer.send(BaseRecord::to(site.topic()).key("a").payload(value)).ok().unwrap();
        producer.flush(limit).unwrap();
        if commit {
            producer.commit_transaction(limit).unwrap();
        } else {
            producer.abort_transaction(limit).unwrap();
        }
    }
    settle(&reader).await; // the marker at the end must not hold the as-of back
    let counter = get(&format!("{}/v1/counters/view/a", reader.url)).await;
    assert_eq!(counter["total"], "2", "what was aborted does not count");
    drop(aggregator);
}
