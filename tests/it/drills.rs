//! Drills: what must be noticed within a minute, stop only what it touches, say what to do, and
//! what an operator does then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use serde_json::Value;
use tally_proto::route;

use crate::support::{Load, Process, Site, unix_ms, wait_until};

/// The number of partitions of a site.
const PARTITIONS: u32 = 8;

async fn cql(site: &Site) -> Session {
    let nodes = &site.settings["TALLY__CQL__CONTACT_POINTS"];
    SessionBuilder::new().known_node(nodes).build().await.unwrap()
}

fn keyspace(site: &Site) -> &str {
    &site.settings["TALLY__CQL__KEYSPACE"]
}

/// Sends views of one subject, one record each.
async fn send(url: &str, subject: &str, count: usize) {
    let http = reqwest::Client::new();
    for _ in 0..count {
        let url = format!("{url}/v1/counters/view/{subject}:add");
        http.post(url).send().await.unwrap().error_for_status().unwrap();
    }
}

/// The total, as soon as it is what is expected.
async fn wait_for_total(url: &str, subject: &str, expected: &str) {
    let started = Instant::now();
    loop {
        let answer = reqwest::get(format!("{url}/v1/counters/view/{subject}")).await.unwrap();
        let answer: Value = answer.json().await.unwrap_or_default();
        if answer["total"] == expected {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{subject}: {answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn wait_until_stopped(aggregator: &Process, reason: &str) {
    aggregator
        .wait_for_message(|line| {
            line["message"] == "partition stopped, an operator must look"
                && line["why"].as_str().is_some_and(|why| why.contains(reason))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_row_stops_its_partition_and_goes_on_in_the_next_lane() {
    let site = Site::new("drill_poison").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let aggregator = site.assigned_aggregator().await;
    let poisoned = route("default", "a", 0, PARTITIONS);
    let other = (0..).map(|n| format!("b{n}"));
    let other = other.into_iter().find(|s| route("default", s, 0, PARTITIONS) != poisoned).unwrap();
    send(&ingest.url, "a", 20).await;
    send(&ingest.url, &other, 5).await;
    wait_for_total(&reader.url, "a", "20").await;
    wait_for_total(&reader.url, &other, "5").await;

    // Somebody mends a total by hand: the same bytes, under the time of day.
    let update = format!(
        "UPDATE {0}.facts SET fact = ? WHERE namespace = 'default' AND subject = 'a' \
         AND kind = 'view' AND lane = 0 AND partition = {poisoned}",
        keyspace(&site)
    );
    let fact = tally_proto::Fact {
        epoch: tally_proto::Epoch::FIRST,
        as_of: tally_proto::AsOf(20),
        generation: 0,
        total: 1_000_000,
        members: tally_proto::Members::None,
    };
    cql(&site).await.query_unpaged(update, (fact.encode().to_vec(),)).await.unwrap();
    wait_until_stopped(&aggregator, "poisoned row").await; // read back by itself
    send(&ingest.url, "a", 3).await;
    send(&ingest.url, &other, 2).await;
    wait_for_total(&reader.url, &other, "7").await;
    let answer = reqwest::get(format!("{}/v1/counters/view/a", reader.url)).await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!((&answer["total"], &answer["stale"]), (&"20".into(), &true.into()), "{answer}");

    let partition = poisoned.to_string();
    let repair = ["lane", "next", "view", "a", "--partition", &partition];
    let (status, said) = Process::run(&repair, &site.settings).await;
    assert!(status.success() && said.contains("stands at 20"), "{said}");
    wait_for_total(&reader.url, "a", "23").await;
    let (status, said) = Process::run(&repair, &site.settings).await;
    assert!(!status.success() && said.contains("is not poisoned"), "{said}");
    send(&ingest.url, "a", 2).await;
    wait_for_total(&reader.url, "a", "25").await;
}

/// A table's rows as another copy of the store would have them: key, blob, timestamp.
type Copy = Vec<(String, Vec<u8>, i64)>;

async fn copy_checkpoints(session: &Session, keyspace: &str) -> Copy {
    let select =
        format!("SELECT partition, checkpoint, WRITETIME(checkpoint) FROM {keyspace}.checkpoints");
    let rows = session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
    let rows = rows.rows::<(i32, Vec<u8>, i64)>().unwrap();
    rows.map(|row| row.unwrap()).map(|(p, blob, at)| (p.to_string(), blob, at)).collect()
}

async fn copy_facts(session: &Session, keyspace: &str) -> Copy {
    let select = format!(
        "SELECT namespace, subject, kind, lane, partition, fact, WRITETIME(fact) \
         FROM {keyspace}.facts"
    );
    let rows = session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
    type Row = (String, String, String, i8, i32, Vec<u8>, i64);
    let rows = rows.rows::<Row>().unwrap().map(|row| row.unwrap());
    rows.map(|(namespace, subject, kind, lane, partition, blob, at)| {
        let key = format!(
            "namespace = '{namespace}' AND subject = '{subject}' AND kind = '{kind}' \
             AND lane = {lane} AND partition = {partition}"
        );
        (key, blob, at)
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_restored_from_an_older_copy_is_noticed_and_replayed() {
    let site = Site::new("drill_restored").await;
    let (ingest, reader) = (site.ingest().await, site.reader().await);
    let aggregator = site.assigned_aggregator().await;
    send(&ingest.url, "a", 20).await;
    wait_for_total(&reader.url, "a", "20").await;
    wait_until(&reader.url, "view/shared:0", unix_ms()).await;
    let (session, keyspace) = (cql(&site).await, keyspace(&site));
    // Checkpoints first: no fact of the copy is older.
    let checkpoints = copy_checkpoints(&session, keyspace).await;
    let facts = copy_facts(&session, keyspace).await;
    assert!(!checkpoints.is_empty() && !facts.is_empty());
    send(&ingest.url, "a", 15).await;
    wait_for_total(&reader.url, "a", "35").await;
    wait_until(&reader.url, "view/shared:0", unix_ms()).await;

    for (table, column, copy) in
        [("checkpoints", "checkpoint", checkpoints), ("facts", "fact", facts)]
    {
        session.query_unpaged(format!("TRUNCATE {keyspace}.{table}"), ()).await.unwrap();
        for (key, blob, at) in copy {
            let key = if column == "fact" { key } else { format!("partition = {key}") };
            let update = format!(
                "UPDATE {keyspace}.{table} USING TIMESTAMP {at} SET {column} = ? WHERE {key}"
            );
            session.query_unpaged(update, (blob,)).await.unwrap();
        }
    }
    wait_until_stopped(&aggregator, "restored from an older copy").await;
    // It stays stopped until somebody has looked, and starts it again.
    assert!(aggregator.stop().await.success());
    let _aggregator = site.assigned_aggregator().await;
    wait_for_total(&reader.url, "a", "35").await;
    send(&ingest.url, "a", 1).await;
    wait_for_total(&reader.url, "a", "36").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_log_is_refused_until_an_operator_goes_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap().to_owned();
    let settings = BTreeMap::from([("TALLY__DATA_DIR".to_owned(), data_dir)]);
    let process = Process::start(&["serve"], &settings).await;
    send(&process.url, "a", 7).await;
    wait_for_total(&process.url, "a", "7").await;
    assert!(process.stop().await.success());

    std::fs::remove_dir_all(folder.path().join("log")).unwrap();
    let (status, said) = Process::run(&["serve"], &settings).await;
    assert!(!status.success() && said.contains("tally epoch next"), "{said}");
    let (status, said) = Process::run(&["epoch", "next", "--from", "start"], &settings).await;
    assert!(status.success() && said.contains("epoch 2 is in force"), "{said}");
    let process = Process::start(&["serve"], &settings).await;
    wait_for_total(&process.url, "a", "7").await;
    send(&process.url, "a", 4).await;
    wait_for_total(&process.url, "a", "11").await;
    process.kill();
    let process = Process::start(&["serve"], &settings).await;
    wait_for_total(&process.url, "a", "11").await;
}

/// A small disk: a file system in memory, mounted for the time of a test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=150m", "tmpfs"])
            .arg(disk.0.path())
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount: are you root?");
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg("-l").arg(self.0.path()).status().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let disk = SmallDisk::mount();
    let data_dir = disk.0.path().join("data").to_str().unwrap().to_owned();
    let settings = BTreeMap::from([("TALLY__DATA_DIR".to_owned(), data_dir)]);
    let process = Process::start(&["serve"], &settings).await;
    let mut load = Load::new(77);
    load.send_for(&process.url, Duration::from_secs(2)).await;
    let filler = disk.0.path().join("filler");
    let filled = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", filler.display()))
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!filled.unwrap().success(), "the disk is full");
    let before = load.acknowledged();
    let full = Instant::now();
    // Until the file that was written last has no room left either.
    while process.messages("stopping").is_empty() {
        load.send(&process.url).await;
        assert!(full.elapsed() < Duration::from_secs(60), "{}", process.log());
    }
    let said = process.messages("stopping").remove(0);
    assert!(said["why"].as_str().unwrap().contains("make room"), "{said}");
    assert!(load.acknowledged() >= before);
    drop(process);
    std::fs::remove_file(filler).unwrap();
    let process = Process::start(&["serve"], &settings).await;
    load.send_for(&process.url, Duration::from_secs(1)).await;
    load.check(&process.url).await;
}
