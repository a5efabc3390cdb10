//! The port: what Tally asks of a log.
//!
//! A partition is a sequence of records with rising offsets; what was appended never changes.
//! Offsets may leave holes (Kafka's transaction markers), append times never go back within a
//! partition, and the oldest records may be taken by retention.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tally_proto::{ContentType, Fingerprint, Offset, Partition};
use thiserror::Error;

/// A record to append.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// The route key, for people and tools; the partition is named beside it.
    pub key: Bytes,
    /// The events.
    pub value: Bytes,
    /// What the value is.
    pub content_type: ContentType,
}

impl NewRecord {
    /// A control record; it is told its partition, so it has no key.
    pub fn control(value: Bytes) -> Self {
        NewRecord { key: Bytes::new(), value, content_type: ContentType::Control }
    }
}

/// A record as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub offset: Offset,
    /// When the log appended it, in milliseconds since 1970.
    pub append_time_ms: i64,
    /// Its key; may be empty.
    pub key: Bytes,
    /// Its value; may be empty.
    pub value: Bytes,
    /// What the value is.
    pub content_type: ContentType,
}

impl Record {
    /// By what the record is recognised.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.offset, &self.key, &self.value, self.append_time_ms)
    }
}

/// Records of one partition, in order.
#[derive(Debug, Clone)]
pub struct RecordBatch {
    /// Where they stand.
    pub partition: Partition,
    /// At least one.
    pub records: Vec<Record>,
}

/// What a consumer saw.
#[derive(Debug)]
pub enum Polled {
    /// Records of a partition that was opened.
    Records(RecordBatch),
    /// These partitions are ours now; nothing is delivered before they are opened.
    Assigned(Vec<Partition>),
    /// These are no longer ours; nothing more is delivered.
    Revoked(Vec<Partition>),
    /// The place that was asked for does not exist: taken by retention, or never there.
    OutOfRange(Partition),
    /// The log cannot be reached, or does not answer as it should; the consumer goes on trying.
    Trouble {
        /// The partition that it is about; `None`: all.
        partition: Option<Partition>,
        /// What the log said.
        message: String,
    },
}

/// Where a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest offset that is still there (or will be next).
    pub start: Offset,
    /// The next offset to be appended.
    pub end: Offset,
}

/// What stands at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A record.
    Record(Fingerprint),
    /// None: outside the bounds, or a hole.
    Nothing(Bounds),
}

/// Why an append did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// Nothing was taken: try again later.
    #[error("the log did not take the record: {0}")]
    Refused(String),
    /// It may have been taken: try again, and it may be there twice.
    #[error("the log did not confirm the record, it may have it: {0}")]
    InDoubt(String),
}

/// Why the log could not be asked. Trying again may help, unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// Cannot be reached, or answers with an error.
    #[error("the log does not answer: {0}")]
    Unavailable(String),
    /// Not the log that Tally needs: configured unsafely, or of another version. Final.
    #[error("{0}")]
    Unsuitable(String),
    /// What it holds contradicts itself. Final.
    #[error("the log is damaged: {0}")]
    Damaged(String),
}

impl LogError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, LogError::Unavailable(_))
    }
}

/// Which partitions a consumer takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consume {
    /// These, whoever else takes them too.
    Assign(Vec<Partition>),
    /// A share of all, as the group divides them.
    Group(String),
}

/// A partitioned, durable log.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// The log's own id: another log with the same name has another one.
    fn cluster(&self) -> &str;

    /// The name of the events topic.
    fn topic(&self) -> &str;

    /// How many partitions it has, fixed for life.
    fn partitions(&self) -> u32;

    /// Appends a record; returns its offset once it is durable. Appends to one partition that are
    /// awaited one after the other stand in that order.
    async fn append(&self, partition: Partition, record: NewRecord) -> Result<Offset, AppendError>;

    /// What stands at an offset.
    async fn read_at(&self, partition: Partition, offset: Offset) -> Result<Found, LogError>;

    /// Where a partition begins and ends.
    async fn bounds(&self, partition: Partition) -> Result<Bounds, LogError>;

    /// The first record at an offset or after it; `None` if the partition ends without one, though
    /// it may end later: what lies between are no records, such as the markers of a transaction.
    /// Also `None` where retention has taken the offset: what is gone is no hole.
    /// In a log without such holes it is the offset itself.
    async fn first_from(
        &self,
        partition: Partition,
        from: Offset,
    ) -> Result<Option<Offset>, LogError> {
        let bounds = self.bounds(partition).await?;
        Ok((bounds.start..bounds.end).contains(&from).then_some(from))
    }

    /// Ready once this process can never append again, and says why: start it again then.
    async fn broken(&self) -> String {
        std::future::pending().await
    }

    /// Checks that this is still the log that was opened, as far as the log can tell.
    async fn verify(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// A consumer, to be polled on a thread of its own.
    fn consumer(&self, consume: Consume) -> Result<Box<dyn LogConsumer>, LogError>;
}

/// Reads partitions. Blocking: lives on a thread of its own.
pub trait LogConsumer: Send {
    /// What happened since the last call; waits at most `max_wait` for the first thing.
    fn poll(&mut self, max_wait: Duration) -> Vec<Polled>;

    /// Delivers the records of an assigned partition from `from` on; may be called again to go
    /// elsewhere. Records that were delivered before may still come out: callers demand the
    /// offset that they expect.
    fn open(&mut self, partition: Partition, from: Offset);

    /// Delivers nothing of the partition until it is resumed.
    fn pause(&mut self, partition: Partition);

    /// Delivers the partition again.
    fn resume(&mut self, partition: Partition);

    /// Everything below `next` is durable in facts, and nobody reads below `needed` again. For lag
    /// tools, and for a log that keeps its own retention; where a fold resumes is never read from it.
    fn report(&mut self, _partition: Partition, _next: Offset, _needed: Offset) {}
}
