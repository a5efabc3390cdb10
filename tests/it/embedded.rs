//! The embedded default: one process, nothing installed.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{Load, Process};

fn settings(folder: &std::path::Path) -> BTreeMap<String, String> {
    [
        ("TALLY__DATA_DIR", folder.to_str().unwrap()),
        ("TALLY__FLUSH__INTERVAL_MS", "300"),
        ("TALLY__READER__REDUCE_INTERVAL_MS", "200"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_after_kills_of_the_whole_process() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let mut rng = StdRng::seed_from_u64(7);
    let mut load = Load::new(1);
    for _ in 0..8 {
        let tally = Process::start(&["serve"], &settings).await;
        let url = tally.url.clone();
        let time = Duration::from_millis(rng.random_range(200..1_500));
        let killer = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            tally.kill();
        });
        load.send_for(&url, time + Duration::from_millis(100)).await;
        killer.await.unwrap();
    }
    let tally = Process::start(&["serve"], &settings).await;
    load.send(&tally.url).await;
    load.check(&tally.url).await;
    assert!(load.acknowledged() > 1_000, "{} requests", load.requests());
    assert!(tally.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let first = Process::start(&["serve"], &settings).await;
    let (status, log) = Process::run(&["serve"], &settings).await;
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("is in use by another process"), "{log}");
    assert!(first.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_partition_count_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    Process::start(&["serve"], &settings).await.stop().await;
    settings.insert("TALLY__PARTITIONS".into(), "16".into());
    let (status, log) = Process::run(&["serve"], &settings).await;
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("has 8 partitions") && log.contains("ask for 16"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_are_refused_with_one_line_before_a_port_is_opened() {
    let refused = |name: &str, value: &str| {
        let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        async move { Process::run(&["serve"], &settings).await }
    };
    let (status, log) = refused("TALLY_KAFKA__BROKERS", "a:1").await;
    assert_eq!(status.code(), Some(2));
    assert!(log.contains("did you mean TALLY__KAFKA__BROKERS?") && log.lines().count() == 1);
    let (status, log) = refused("TALLY__PARTITIONS", "5000").await;
    assert_eq!(status.code(), Some(2));
    assert!(log.contains("5000") && log.lines().count() == 1, "{log}");
    let (status, log) = Process::run(&["aggregator"], &BTreeMap::new()).await;
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("needs both kafka.brokers and cql.contact_points"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_can_prove_it_on_their_own_machine() {
    let prove = ["prove", "--duration", "15s", "--rate", "5000"];
    let (status, said) = Process::run(&prove, &BTreeMap::new()).await;
    assert!(status.success() && said.contains("every total is equal to the truth"), "{said}");
    assert!(said.contains("serve: "), "nothing was done to it: {said}");
}
