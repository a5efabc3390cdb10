//! Single records and bounds, by a client and a thread of their own: the thread that polls must
//! not wait for them.

use std::sync::mpsc as blocking;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, Message, TopicPartitionList};
use tally_proto::{Offset, Partition};
use tally_service::clock::SystemClock;
use tokio::sync::oneshot;

use super::client::{self, ANSWER, Quiet};
use super::{number, place, unavailable};
use crate::port::{Bounds, Found, LogError, Record};

type Reading = BaseConsumer<Quiet>;
type Reply<T> = oneshot::Sender<Result<T, LogError>>;

enum Question {
    ReadAt(Partition, Offset, Reply<Found>),
    Bounds(Partition, Reply<Bounds>),
    FirstFrom(Partition, Offset, Reply<Option<Offset>>),
    Cluster(Reply<String>),
}

/// Asks the thread; it ends when this is dropped.
pub(super) struct Lookup {
    questions: blocking::Sender<Question>,
}

impl Lookup {
    pub(super) fn start(client: &ClientConfig, topic: &str) -> Result<Self, LogError> {
        let consumer: Reading = client::consumer_config(client)
            .set("group.id", "tally-lookup") // required by the client; it never joins
            .set("queued.min.messages", "1")
            .set("queued.max.messages.kbytes", "1024")
            .set("fetch.message.max.bytes", "65536")
            .set("fetch.wait.max.ms", "20")
            .set("enable.partition.eof", "true")
            .create_with_context(Quiet)
            .map_err(unavailable)?;
        let (questions, inbox) = blocking::channel();
        let topic = topic.to_owned();
        std::thread::Builder::new()
            .name("tally-lookup".into())
            .spawn(move || {
                for question in inbox {
                    answer(&consumer, &topic, question);
                }
            })
            .map_err(unavailable)?;
        Ok(Lookup { questions })
    }

    pub(super) async fn read_at(&self, at: Partition, offset: Offset) -> Result<Found, LogError> {
        self.ask(|reply| Question::ReadAt(at, offset, reply)).await
    }

    pub(super) async fn bounds(&self, of: Partition) -> Result<Bounds, LogError> {
        self.ask(|reply| Question::Bounds(of, reply)).await
    }

    pub(super) async fn first_from(
        &self,
        of: Partition,
        from: Offset,
    ) -> Result<Option<Offset>, LogError> {
        self.ask(|reply| Question::FirstFrom(of, from, reply)).await
    }

    pub(super) async fn cluster(&self) -> Result<String, LogError> {
        self.ask(Question::Cluster).await
    }

    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, LogError> {
        let gone = || unavailable("the lookup thread has died");
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn answer(consumer: &Reading, topic: &str, question: Question) {
    match question {
        Question::ReadAt(partition, offset, reply) => {
            reply.send(read_at(consumer, topic, partition, offset)).ok();
        }
        Question::Bounds(partition, reply) => {
            reply.send(bounds(consumer, topic, partition)).ok();
        }
        Question::FirstFrom(partition, from, reply) => {
            let next = next_record(consumer, topic, partition, from);
            reply.send(next.map(|next| next.map(|record| record.offset))).ok();
        }
        Question::Cluster(reply) => {
            let cluster = consumer.client().fetch_cluster_id(ANSWER);
            reply.send(cluster.ok_or_else(|| unavailable("no broker answers"))).ok();
        }
    }
}

fn bounds(consumer: &Reading, topic: &str, partition: Partition) -> Result<Bounds, LogError> {
    let (start, end) =
        consumer.fetch_watermarks(topic, number(partition), ANSWER).map_err(unavailable)?;
    let offset = |raw: i64| u64::try_from(raw).map(Offset).map_err(unavailable);
    Ok(Bounds { start: offset(start)?, end: offset(end)? })
}

/// What stands at an offset.
fn read_at(
    consumer: &Reading,
    topic: &str,
    partition: Partition,
    offset: Offset,
) -> Result<Found, LogError> {
    let known = bounds(consumer, topic, partition)?;
    if offset < known.start || offset >= known.end {
        return Ok(Found::Nothing(known));
    }
    match next_record(consumer, topic, partition, offset)? {
        Some(record) if record.offset == offset => Ok(Found::Record(record.fingerprint())),
        _ => Ok(Found::Nothing(bounds(consumer, topic, partition)?)),
    }
}

/// The first record at an offset or after it; `None` if the partition ends without one, or the
/// offset does not exist.
fn next_record(
    consumer: &Reading,
    topic: &str,
    partition: Partition,
    from: Offset,
) -> Result<Option<Record>, LogError> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, number(partition), place(from)).map_err(unavailable)?;
    consumer.assign(&list).map_err(unavailable)?;
    let clock = SystemClock::shared();
    let deadline = clock.monotonic() + ANSWER;
    let found = loop {
        if clock.monotonic() > deadline {
            break Err(unavailable(format!("no record of partition {partition} in time")));
        }
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Ok(message)) if message.partition() == number(partition) => {
                let record = client::record(&message);
                if record.offset >= from {
                    break Ok(Some(record));
                }
            }
            Some(Ok(_)) => {} // of a former question
            Some(Err(KafkaError::PartitionEOF(at))) if at != number(partition) => {}
            Some(Err(KafkaError::PartitionEOF(_))) => break Ok(None),
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => break Ok(None),
                _ => break Err(unavailable(error)),
            },
        }
    };
    consumer.unassign().ok();
    found
}
