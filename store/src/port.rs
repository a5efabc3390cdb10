//! The port: what Tally asks of a store.
//!
//! Facts and checkpoints are written under their stamp (`epoch << 44 | as_of`), and the store
//! keeps the one with the largest: a retry, a duplicate, a reordered or late write changes
//! nothing. A read that follows an acknowledged write sees it or a newer one (quorum on both).

use async_trait::async_trait;
use tally_proto::{
    BlobError, Checkpoint, CounterId, Fact, Lane, Layout, LedgerEntry, Partition, SubjectId,
};
use thiserror::Error;

use crate::rows::{Created, DeadLetter, FactRow, LedgerRow, Progress};

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// It does not answer, or too late; what was written may stand or not. Try again.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// A cell whose write timestamp is not the stamp of what it holds: somebody wrote it without
    /// one, and it would hide every later fact. Stop the partition.
    #[error(
        "poisoned row {row}: written at {written_at}, but it says {says}; somebody wrote it by \
         hand. Its partition counts nothing more: go on with `tally lane next`"
    )]
    Poisoned {
        /// Which row.
        row: String,
        /// The lane that it stands in; `None` where there are no lanes.
        lane: Option<Lane>,
        /// The store's timestamp of the cell.
        written_at: i64,
        /// The stamp of the fact inside.
        says: i64,
    },
    /// What it holds cannot be read. Stop.
    #[error("row {row} cannot be read: {error}")]
    Unreadable {
        /// Which row.
        row: String,
        /// What is wrong with it.
        error: BlobError,
    },
    /// Not the store that Tally needs: not set up, configured unsafely, or of another version.
    #[error("{0}")]
    Unsuitable(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }
}

/// Keeps facts, checkpoints and what belongs to them.
#[async_trait]
pub trait FactStore: Send + Sync + 'static {
    /// Ready once this process can never write again, and says why: start it again then.
    async fn broken(&self) -> String {
        std::future::pending().await
    }

    /// The layout, if one was written.
    async fn layout(&self) -> Result<Option<Layout>, StoreError>;

    /// Writes the layout if there is none; returns the one that is in force.
    async fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError>;

    /// Replaces the layout if it is still the old one; returns the one that is in force.
    async fn replace_layout(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError>;

    /// The checkpoint of a partition.
    async fn load_checkpoint(&self, partition: Partition)
    -> Result<Option<Checkpoint>, StoreError>;

    /// Writes a checkpoint; durable when it returns.
    async fn write_checkpoint(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError>;

    /// What a partition says of these counters, in their order: the lane in use and its fact.
    async fn load_facts(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError>;

    /// Writes facts; all are durable when it returns `Ok`, any of them may be if not.
    async fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError>;

    /// What the ledger says of these actors of a counter, in their order.
    async fn load_entries(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError>;

    /// At most `limit` entries of one bucket of a counter's ledger ([`LedgerEntry::bucket`]), in the
    /// order of their actors, after one of them.
    async fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError>;

    /// Writes entries of the ledger, as facts are written.
    async fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError>;

    /// All facts of a subject: of every kind and partition, of the lane in use.
    async fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError>;

    /// Subjects that have facts, each once, in an order of the store's own: at most `limit` of those
    /// after one of them.
    async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError>;

    /// What createCounter said of a counter, if anything.
    async fn load_created(&self, counter: &CounterId) -> Result<Option<Created>, StoreError>;

    /// Writes what createCounter said, or takes it away; who writes last is right.
    async fn write_created(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError>;

    /// Overwrites progress rows.
    async fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError>;

    /// The progress of all of the first `partitions` partitions, by whoever wrote it.
    async fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError>;

    /// Writes dead letters; the same one again changes nothing.
    async fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError>;

    /// The dead letters of a partition and day, by offset and index; at most `limit`.
    async fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;
}
