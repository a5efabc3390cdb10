//! Reading: by a group, or partitions by number. Offsets always come from who opens a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use rdkafka::{ClientConfig, Message, Offset as Place, TopicPartitionList};
use tally_proto::{Offset, Partition};
use tally_service::clock::{SharedClock, SystemClock};

use super::client;
use super::settings::KafkaSettings;
use super::{number, place, unavailable};
use crate::port::{Consume, LogConsumer, LogError, Polled, RecordBatch};

/// One poll hands out at most so many records, and about so many bytes.
const POLL_RECORDS: usize = 5_000;
const POLL_BYTES: usize = 1 << 20;

/// How often progress is told to lag tools.
const COMMIT_EVERY: Duration = Duration::from_secs(2);

/// Collects what a rebalance says; it runs within `poll`, so nothing is lost in between.
struct Rebalances {
    seen: Arc<Mutex<Vec<Polled>>>,
}

impl ClientContext for Rebalances {
    fn error(&self, error: KafkaError, reason: &str) {
        super::client::note(&error, reason);
    }
}

impl ConsumerContext for Rebalances {
    /// New partitions are assigned but paused: nothing comes of them before they are opened. The
    /// callback never waits for a store.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let partitions = partitions(list);
        let done = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => list
                .set_all_offsets(Place::End)
                .and_then(|()| consumer.incremental_assign(list))
                .and_then(|()| consumer.pause(list))
                .map(|()| Polled::Assigned(partitions)),
            _ => consumer.incremental_unassign(list).map(|()| Polled::Revoked(partitions)),
        };
        self.seen.lock().push(done.unwrap_or_else(|error| Polled::Trouble {
            partition: None,
            message: format!("rebalance: {error}"),
        }));
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<Partition> {
    let partition = |raw: i32| u32::try_from(raw).ok().map(Partition);
    list.elements().iter().filter_map(|element| partition(element.partition())).collect()
}

pub(super) struct KafkaConsumer {
    native: BaseConsumer<Rebalances>,
    topic: String,
    rebalances: Arc<Mutex<Vec<Polled>>>,
    /// Assigned to the client, opened or not.
    assigned: BTreeSet<Partition>,
    open: BTreeSet<Partition>,
    /// To be told to lag tools; `None` without a group.
    reports: Option<BTreeMap<Partition, Offset>>,
    next_commit: Duration,
    clock: SharedClock,
}

impl KafkaConsumer {
    pub(super) fn new(
        client: &ClientConfig,
        settings: &KafkaSettings,
        consume: Consume,
    ) -> Result<Self, LogError> {
        let mut config = client::consumer_config(client);
        config
            .set("queued.min.messages", "20000")
            .set("queued.max.messages.kbytes", "4096") // of one partition
            .set("fetch.message.max.bytes", "1048576")
            .set("fetch.queue.backoff.ms", "10") // when that is full; else a second is lost each time
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100")
            .set("group.id", "tally-unused"); // required by the client, also where none joins
        if let Consume::Group(group) = &consume {
            config.set("group.id", group).set("group.protocol", &settings.group_protocol);
            if settings.group_protocol == "classic" {
                config
                    .set("partition.assignment.strategy", "cooperative-sticky")
                    .set("session.timeout.ms", settings.session_timeout_ms.to_string())
                    .set("heartbeat.interval.ms", (settings.session_timeout_ms / 6).to_string());
            }
        }
        let rebalances = Arc::new(Mutex::new(Vec::new()));
        let context = Rebalances { seen: rebalances.clone() };
        let native: BaseConsumer<Rebalances> =
            config.create_with_context(context).map_err(unavailable)?;
        let mut reports = None;
        match consume {
            Consume::Assign(partitions) => rebalances.lock().push(Polled::Assigned(partitions)),
            Consume::Group(_) => {
                reports = Some(BTreeMap::new());
                native.subscribe(&[&settings.topic]).map_err(unavailable)?;
            }
        }
        Ok(KafkaConsumer {
            native,
            topic: settings.topic.clone(),
            rebalances,
            assigned: BTreeSet::new(),
            open: BTreeSet::new(),
            reports,
            next_commit: Duration::ZERO,
            clock: SystemClock::shared(),
        })
    }

    fn list(&self, partition: Partition) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, number(partition));
        list
    }

    /// What rebalances said since the last time.
    fn take_rebalances(&mut self) -> Vec<Polled> {
        let seen = std::mem::take(&mut *self.rebalances.lock());
        for polled in &seen {
            match polled {
                Polled::Assigned(partitions) if self.reports.is_some() => {
                    self.assigned.extend(partitions);
                }
                Polled::Revoked(partitions) => {
                    for partition in partitions {
                        self.assigned.remove(partition);
                        self.open.remove(partition);
                        if let Some(reports) = &mut self.reports {
                            reports.remove(partition);
                        }
                    }
                }
                _ => {}
            }
        }
        seen
    }

    /// Reads what has arrived, up to the bounds of one poll.
    fn gather(&self, max_wait: Duration) -> Vec<Polled> {
        let mut polled = Vec::new();
        let (mut records, mut bytes, mut wait) = (0, 0, max_wait);
        while records < POLL_RECORDS && bytes < POLL_BYTES {
            let Some(next) = self.native.poll(wait) else { break };
            wait = Duration::ZERO;
            match next {
                Ok(message) => {
                    records += 1;
                    bytes += message.payload_len() + message.key_len();
                    let partition = u32::try_from(message.partition()).map(Partition);
                    let Ok(partition) = partition else { continue };
                    if self.open.contains(&partition) {
                        add(&mut polled, partition, client::record(&message));
                    }
                }
                Err(error) => self.take_error(&error, &mut polled),
            }
        }
        polled
    }

    fn take_error(&self, error: &KafkaError, polled: &mut Vec<Polled>) {
        match error.rdkafka_error_code() {
            // The client does not say which partition: each is looked at.
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => {
                polled.extend(self.open.iter().copied().map(Polled::OutOfRange));
            }
            _ => polled.push(Polled::Trouble { partition: None, message: error.to_string() }),
        }
    }

    /// Tells lag tools how far the group is; nothing depends on it.
    fn commit_if_due(&mut self) {
        let now = self.clock.monotonic();
        let Some(reports) = self.reports.as_mut().filter(|r| !r.is_empty()) else { return };
        if now < self.next_commit {
            return;
        }
        self.next_commit = now + COMMIT_EVERY;
        let mut list = TopicPartitionList::new();
        for (partition, next) in std::mem::take(reports) {
            list.add_partition_offset(&self.topic, number(partition), place(next)).ok();
        }
        if let Err(error) = self.native.commit(&list, CommitMode::Async) {
            tracing::debug!(%error, "lag tools were not told");
        }
    }
}

/// Adds a record to the batch of its partition, or begins one.
fn add(polled: &mut Vec<Polled>, partition: Partition, record: crate::port::Record) {
    match polled.last_mut() {
        Some(Polled::Records(batch)) if batch.partition == partition => batch.records.push(record),
        _ => polled.push(Polled::Records(RecordBatch { partition, records: vec![record] })),
    }
}

fn warn(partition: Partition, what: &str, result: Result<(), KafkaError>) {
    if let Err(error) = result {
        tracing::warn!(partition = partition.0, %error, "the consumer cannot {what} it");
    }
}

impl LogConsumer for KafkaConsumer {
    fn poll(&mut self, max_wait: Duration) -> Vec<Polled> {
        self.commit_if_due();
        let mut gathered = self.gather(max_wait);
        let mut polled = self.take_rebalances();
        // A rebalance ran within the polls: what was read of a partition before it was revoked is
        // void, since its owner is another now.
        gathered.retain(|polled| match polled {
            Polled::Records(batch) => self.open.contains(&batch.partition),
            _ => true,
        });
        polled.append(&mut gathered);
        polled
    }

    fn open(&mut self, partition: Partition, from: Offset) {
        let in_group = self.reports.is_some();
        if in_group && !self.assigned.contains(&partition) {
            return; // revoked meanwhile
        }
        if self.assigned.contains(&partition) {
            warn(partition, "close", self.native.incremental_unassign(&self.list(partition)));
        }
        let mut list = TopicPartitionList::new();
        let opened = list
            .add_partition_offset(&self.topic, number(partition), place(from))
            .and_then(|()| self.native.incremental_assign(&list))
            .and_then(|()| self.native.resume(&list));
        warn(partition, "open", opened);
        self.assigned.insert(partition);
        self.open.insert(partition);
    }

    fn pause(&mut self, partition: Partition) {
        if self.open.contains(&partition) {
            warn(partition, "pause", self.native.pause(&self.list(partition)));
        }
    }

    fn resume(&mut self, partition: Partition) {
        if self.open.contains(&partition) {
            warn(partition, "resume", self.native.resume(&self.list(partition)));
        }
    }

    fn report(&mut self, partition: Partition, next: Offset, _needed: Offset) {
        if let Some(reports) = &mut self.reports {
            reports.insert(partition, next);
        }
    }
}
