//! The contract suites of log and store, on the real servers.

use std::net::SocketAddr;
use std::sync::Arc;

use scylla_proxy::{
    Condition, Node, Proxy, RequestOpcode, RequestReaction, RequestRule, ShardAwareness,
};
use tally_log::EventLog;
use tally_log::kafka::{KafkaLog, KafkaSettings};
use tally_proto::{AsOf, CounterId, Epoch, Fact, Lane, Partition};
use tally_store::FactRow;
use tally_store::cql::{CqlSettings, CqlStore};
use tally_store::{FactStore, StoreError};

use crate::support::Site;

fn kafka(site: &Site) -> KafkaSettings {
    KafkaSettings {
        brokers: Some(site.settings["TALLY__KAFKA__BROKERS"].clone()),
        topic: site.topic().to_owned(),
        replication_factor: 1,
        ..KafkaSettings::default()
    }
}

fn cql(site: &Site) -> CqlSettings {
    CqlSettings {
        contact_points: Some(site.settings["TALLY__CQL__CONTACT_POINTS"].clone()),
        keyspace: site.settings["TALLY__CQL__KEYSPACE"].clone(),
        replication_factor: 1,
        ..CqlSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_keeps_the_contract_of_the_log() {
    let site = Site::new("contract_log").await;
    let log = KafkaLog::open(&kafka(&site), true).await.unwrap();
    tally_log::contract::run(Arc::new(log)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cassandra_keeps_the_contract_of_the_store() {
    let site = Site::new("contract_store").await;
    // Setup has written a layout, which the suite wants to do itself.
    let keyspace = format!("{}_empty", site.settings["TALLY__CQL__KEYSPACE"]);
    let settings = CqlSettings { keyspace, ..cql(&site) };
    assert!(CqlStore::create(&settings, true).await.unwrap() > 1);
    assert_eq!(CqlStore::create(&settings, true).await, Ok(0), "again, it changes nothing");
    let store = CqlStore::open(&settings, true).await.unwrap();
    tally_store::contract::run(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_copy_is_refused_unless_it_was_said_to_be_enough() {
    let site = Site::new("copies").await;
    let strict = KafkaSettings { replication_factor: 3, ..kafka(&site) };
    let Err(error) = KafkaLog::open(&strict, false).await else { panic!("refused") };
    assert!(error.to_string().contains("replicas"), "{error}");
    let strict = CqlSettings { replication_factor: 3, ..cql(&site) };
    let Err(error) = CqlStore::open(&strict, false).await else { panic!("refused") };
    assert!(error.to_string().contains("copies"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_set_up_is_refused_with_what_to_do() {
    let site = Site::new("not_set_up").await;
    let absent = KafkaSettings { topic: "absent".into(), ..kafka(&site) };
    let Err(error) = KafkaLog::open(&absent, true).await else { panic!("refused") };
    assert!(error.to_string().contains("run `tally setup`"), "{error}");
    let absent = CqlSettings { keyspace: "absent".into(), ..cql(&site) };
    let Err(error) = CqlStore::open(&absent, true).await else { panic!("refused") };
    assert!(error.to_string().contains("run `tally setup`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_written_without_its_stamp_is_found_to_be_poison() {
    let site = Site::new("poison_cell").await;
    let settings = cql(&site);
    let store = CqlStore::open(&settings, true).await.unwrap();
    let counter = CounterId::new("default", "view", "a").unwrap();
    let fact = Fact {
        epoch: Epoch::FIRST,
        as_of: AsOf(5),
        generation: 0,
        total: 7,
        members: tally_proto::Members::None,
    };
    let (lane, partition) = (Lane(0), Partition(0));
    let row = FactRow { counter: counter.clone(), lane, partition, fact: fact.clone() };
    store.write_facts(&[row]).await.unwrap();
    let blob: String = fact.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let session = scylla::client::session_builder::SessionBuilder::new()
        .known_node(settings.contact_points.unwrap())
        .build()
        .await
        .unwrap();
    let update = format!(
        "UPDATE {}.facts SET fact = 0x{blob} WHERE namespace = 'default' AND subject = 'a' \
         AND kind = 'view' AND lane = 0 AND partition = 0",
        settings.keyspace
    );
    session.query_unpaged(update, ()).await.unwrap();
    let loaded = store.load_facts(partition, std::slice::from_ref(&counter)).await;
    assert!(matches!(loaded, Err(StoreError::Poisoned { .. })), "{loaded:?}");
    let read = store.read_subject(&counter.subject).await;
    assert!(matches!(read, Err(StoreError::Poisoned { .. })), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_finds_what_stands_at_an_offset_again_and_again() {
    let site = Site::new("lookups").await;
    let log = KafkaLog::open(&kafka(&site), true).await.unwrap();
    let record = tally_log::NewRecord {
        key: "k".into(),
        value: "v".into(),
        content_type: tally_proto::ContentType::Json,
    };
    for _ in 0..3 {
        log.append(Partition(1), record.clone()).await.unwrap();
    }
    for _ in 0..5 {
        for offset in [0, 2, 1] {
            let found = log.read_at(Partition(1), tally_proto::Offset(offset)).await.unwrap();
            assert!(matches!(found, tally_log::Found::Record(f) if f.offset.0 == offset));
        }
    }
}

/// Errors that a real node does not give on demand, forged on the way to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_node_is_told_as_one_to_try_again_and_nothing_is_lost() {
    let site = Site::new("forged").await;
    let real: SocketAddr = site.settings["TALLY__CQL__CONTACT_POINTS"].parse().unwrap();
    // On the node's own address: the driver learns the address from the node, and keeps the port.
    let free = std::net::TcpListener::bind(SocketAddr::new(real.ip(), 0)).unwrap();
    let proxy_address = free.local_addr().unwrap();
    drop(free);
    let node = Node::builder()
        .real_address(real)
        .proxy_address(proxy_address)
        .shard_awareness(ShardAwareness::Unaware)
        .build();
    let mut proxy = Proxy::builder().with_node(node).build().run().await.unwrap();
    let settings = CqlSettings { contact_points: Some(proxy_address.to_string()), ..cql(&site) };
    let store = CqlStore::open(&settings, true).await.unwrap();
    let counter = |n: u64| CounterId::new("default", "view", &format!("f{n}")).unwrap();
    let row = |n: u64, as_of: u64| FactRow {
        counter: counter(n),
        lane: Lane(0),
        partition: Partition(0),
        fact: Fact {
            epoch: Epoch::FIRST,
            as_of: AsOf(as_of),
            generation: 0,
            total: 7,
            members: tally_proto::Members::None,
        },
    };
    let rows: Vec<FactRow> = (0..50).map(|n| row(n, 5)).collect();
    let writes = || {
        Condition::any([
            Condition::RequestOpcode(RequestOpcode::Execute),
            Condition::RequestOpcode(RequestOpcode::Batch),
        ])
    };
    type Forge = fn() -> RequestReaction;
    let errors: [Forge; 4] = [
        || RequestReaction::forge().write_timeout(),
        || RequestReaction::forge().unavailable(),
        || RequestReaction::forge().overloaded(),
        || RequestReaction::forge().server_error(),
    ];
    for forge in errors {
        let rule = RequestRule(writes().and(Condition::RandomWithProbability(0.3)), forge());
        proxy.running_nodes[0].change_request_rules(Some(vec![rule]));
        let failed = store.write_facts(&rows).await;
        // Some errors the driver hides by trying again: then all of it was written.
        assert!(failed.as_ref().err().is_none_or(StoreError::is_retryable), "{failed:?}");
    }
    let always = RequestRule(writes(), RequestReaction::forge().write_timeout());
    proxy.running_nodes[0].change_request_rules(Some(vec![always]));
    let failed = store.write_facts(&rows).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    let denied = RequestRule(writes(), RequestReaction::forge().unauthorized());
    proxy.running_nodes[0].change_request_rules(Some(vec![denied]));
    let failed = store.write_facts(&rows).await;
    assert!(
        matches!(failed, Err(StoreError::Unsuitable(_))),
        "rights do not come back: {failed:?}"
    );
    proxy.running_nodes[0].change_request_rules(None);
    store.write_facts(&rows).await.unwrap();
    let asked: Vec<_> = (0..50).map(counter).collect();
    let loaded = store.load_facts(Partition(0), &asked).await.unwrap();
    assert!(loaded.iter().all(|l| l.as_ref().is_some_and(|(_, fact)| fact.total == 7)));
    drop(proxy); // its own `finish` panics when a worker is still on its way out
}
