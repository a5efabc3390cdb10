//! The contract suite: what every adapter must do, run by each of them.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tally_proto::{ContentType, Offset, Partition};

use crate::port::{Consume, EventLog, Found, LogConsumer, NewRecord, Polled, Record};

/// Runs the suite on an empty log of at least 4 partitions.
pub async fn run(log: Arc<dyn EventLog>) {
    assert!(log.partitions() >= 4);
    assert!(!log.cluster().is_empty() && !log.topic().is_empty());
    log.verify().await.unwrap();
    an_empty_partition_begins_where_it_ends(&*log).await;
    appended_records_stand_in_order(&*log).await;
    a_record_is_found_by_its_offset(&*log).await;
    a_consumer_delivers_from_where_it_was_opened(log.clone()).await;
    a_paused_partition_delivers_nothing(log.clone()).await;
    many_appends_at_once_all_stand(log.clone()).await;
}

fn record(text: &str) -> NewRecord {
    NewRecord {
        key: Bytes::from_static(b"video:1"),
        value: Bytes::copy_from_slice(text.as_bytes()),
        content_type: ContentType::Json,
    }
}

async fn an_empty_partition_begins_where_it_ends(log: &dyn EventLog) {
    let bounds = log.bounds(Partition(0)).await.unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(0)));
    assert!(
        matches!(log.read_at(Partition(0), Offset(0)).await, Ok(Found::Nothing(b)) if b == bounds)
    );
}

async fn appended_records_stand_in_order(log: &dyn EventLog) {
    for n in 0..5 {
        assert_eq!(log.append(Partition(0), record(&format!("r{n}"))).await, Ok(Offset(n)));
    }
    let bounds = log.bounds(Partition(0)).await.unwrap();
    assert_eq!((bounds.start, bounds.end), (Offset(0), Offset(5)));
}

async fn a_record_is_found_by_its_offset(log: &dyn EventLog) {
    let Ok(Found::Record(found)) = log.read_at(Partition(0), Offset(3)).await else {
        panic!("the record at 3 stands")
    };
    assert_eq!(found.offset, Offset(3));
    assert_eq!(found.crc32c, tally_proto::Fingerprint::checksum(b"video:1", b"r3"));
    assert!(found.append_time_ms > 1_600_000_000_000);
    assert!(
        matches!(log.read_at(Partition(0), Offset(99)).await, Ok(Found::Nothing(b)) if b.end == Offset(5))
    );
}

async fn a_consumer_delivers_from_where_it_was_opened(log: Arc<dyn EventLog>) {
    let packed = NewRecord { content_type: ContentType::Batch, ..record("packed") };
    log.append(Partition(1), packed).await.unwrap();
    let mut consumer = log.consumer(Consume::Assign(vec![Partition(0), Partition(1)])).unwrap();
    let (consumer, seen) = tokio::task::spawn_blocking(move || {
        wait_assigned(&mut *consumer, &[Partition(0), Partition(1)]);
        consumer.open(Partition(0), Offset(2));
        consumer.open(Partition(1), Offset(0));
        let seen = collect(&mut *consumer, 4);
        (consumer, seen)
    })
    .await
    .unwrap();
    let of = |p: u32| -> Vec<&Record> {
        seen.iter().filter(|(partition, _)| partition.0 == p).map(|(_, r)| r).collect()
    };
    let values: Vec<&[u8]> = of(0).iter().map(|r| r.value.as_ref()).collect();
    assert_eq!(values, [b"r2", b"r3", b"r4"]);
    assert!(of(0).windows(2).all(|w| w[0].append_time_ms <= w[1].append_time_ms));
    assert_eq!(of(1)[0].content_type, ContentType::Batch);
    assert_eq!(of(1)[0].key.as_ref(), b"video:1");
    let Ok(Found::Record(found)) = log.read_at(Partition(0), Offset(2)).await else { panic!() };
    assert_eq!(found, of(0)[0].fingerprint(), "both ways of reading see one record");
    drop(consumer);
}

async fn a_paused_partition_delivers_nothing(log: Arc<dyn EventLog>) {
    let mut consumer = log.consumer(Consume::Assign(vec![Partition(2)])).unwrap();
    log.append(Partition(2), record("a")).await.unwrap();
    tokio::task::spawn_blocking(move || {
        wait_assigned(&mut *consumer, &[Partition(2)]);
        consumer.open(Partition(2), Offset(0));
        assert_eq!(collect(&mut *consumer, 1).len(), 1);
        consumer.pause(Partition(2));
        let handle = tokio::runtime::Handle::current();
        handle.block_on(log.append(Partition(2), record("b"))).unwrap();
        let quiet: Vec<_> = (0..5).flat_map(|_| consumer.poll(Duration::from_millis(50))).collect();
        assert!(!quiet.iter().any(|polled| matches!(polled, Polled::Records(_))), "{quiet:?}");
        consumer.resume(Partition(2));
        assert_eq!(collect(&mut *consumer, 1)[0].1.value.as_ref(), b"b");
        consumer.open(Partition(2), Offset(0));
        assert_eq!(collect(&mut *consumer, 2).len(), 2, "opened again, it goes back");
    })
    .await
    .unwrap();
}

async fn many_appends_at_once_all_stand(log: Arc<dyn EventLog>) {
    let before = log.bounds(Partition(3)).await.unwrap().end;
    let appends = (0..500).map(|n| {
        let log = log.clone();
        async move { log.append(Partition(3), record(&format!("m{n}"))).await.unwrap() }
    });
    let mut offsets = futures::future::join_all(appends).await;
    offsets.sort_unstable();
    let expected: Vec<Offset> = (before.0..before.0 + 500).map(Offset).collect();
    assert_eq!(offsets, expected);
}

/// Polls until these partitions are assigned.
fn wait_assigned(consumer: &mut dyn LogConsumer, partitions: &[Partition]) {
    let mut assigned = Vec::new();
    for _ in 0..600 {
        for polled in consumer.poll(Duration::from_millis(50)) {
            if let Polled::Assigned(more) = polled {
                assigned.extend(more);
            }
        }
        if partitions.iter().all(|p| assigned.contains(p)) {
            return;
        }
    }
    panic!("not assigned after 30 s: {assigned:?}");
}

/// Polls until `count` records came.
fn collect(consumer: &mut dyn LogConsumer, count: usize) -> Vec<(Partition, Record)> {
    let mut seen = Vec::new();
    for _ in 0..600 {
        for polled in consumer.poll(Duration::from_millis(50)) {
            if let Polled::Records(batch) = polled {
                seen.extend(batch.records.into_iter().map(|record| (batch.partition, record)));
            }
        }
        if seen.len() >= count {
            return seen;
        }
    }
    panic!("only {} of {count} records after 30 s", seen.len());
}
