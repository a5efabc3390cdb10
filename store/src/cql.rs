//! The store on Cassandra or ScyllaDB. The only place that names scylla.
//!
//! Invariants: every write to facts and checkpoints carries `USING TIMESTAMP ?`, bound to the
//! stamp; one cell a fact; reads and writes ask a quorum of all replicas; what lies in one store
//! partition goes in one UNLOGGED batch; a fact whose write timestamp is not its stamp is poison.

mod checkpoints;
mod checks;
mod created;
mod dead_letters;
mod facts;
mod layout;
mod ledger;
mod migrations;
mod progress;
mod session;
mod settings;

use async_trait::async_trait;
use tally_proto::{Checkpoint, CounterId, Fact, Lane, Layout, LedgerEntry, Partition, SubjectId};

use crate::port::{FactStore, StoreError};
use crate::rows::{Created, DeadLetter, FactRow, LedgerRow, Progress};

pub use settings::CqlSettings;

use checkpoints::Checkpoints;
use created::CreatedRows;
use dead_letters::DeadLetters;
use facts::Facts;
use layout::Layouts;
use ledger::Ledger;
use progress::ProgressRows;
use session::Cql;

/// A store on a cluster that speaks CQL.
pub struct CqlStore {
    layouts: Layouts,
    checkpoints: Checkpoints,
    facts: Facts,
    ledger: Ledger,
    progress: ProgressRows,
    created: CreatedRows,
    dead_letters: DeadLetters,
}

impl CqlStore {
    /// Connects, and refuses a cluster or keyspace that could lose or hide what it acknowledged;
    /// `allow_single_replica` accepts one that can lose its only copy.
    pub async fn open(
        settings: &CqlSettings,
        allow_single_replica: bool,
    ) -> Result<Self, StoreError> {
        let cql = Cql::connect(settings).await?;
        checks::keyspace(&cql, settings, allow_single_replica).await?;
        migrations::check(&cql).await?;
        checks::tables(&cql, settings).await?;
        checks::commit_log(&cql, allow_single_replica).await?;
        checks::timestamps(&cql).await?;
        Ok(CqlStore {
            layouts: Layouts::prepare(&cql).await?,
            checkpoints: Checkpoints::prepare(&cql).await?,
            facts: Facts::prepare(&cql).await?,
            ledger: Ledger::prepare(&cql).await?,
            progress: ProgressRows::prepare(&cql).await?,
            created: CreatedRows::prepare(&cql).await?,
            dead_letters: DeadLetters::prepare(&cql).await?,
        })
    }

    /// Creates the keyspace and brings its tables up to date; returns how many steps that took.
    pub async fn create(
        settings: &CqlSettings,
        allow_single_replica: bool,
    ) -> Result<usize, StoreError> {
        let cql = Cql::connect(settings).await?;
        checks::commit_log(&cql, allow_single_replica).await?;
        let created = migrations::create_keyspace(&cql, settings, allow_single_replica).await?;
        checks::keyspace(&cql, settings, allow_single_replica).await?;
        Ok(migrations::apply(&cql).await? + usize::from(created))
    }
}

#[async_trait]
impl FactStore for CqlStore {
    async fn layout(&self) -> Result<Option<Layout>, StoreError> {
        self.layouts.load().await
    }

    async fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError> {
        self.layouts.create(layout).await
    }

    async fn replace_layout(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        self.layouts.replace(old, new).await
    }

    async fn load_checkpoint(
        &self,
        partition: Partition,
    ) -> Result<Option<Checkpoint>, StoreError> {
        self.checkpoints.load(partition).await
    }

    async fn write_checkpoint(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        self.checkpoints.write(partition, checkpoint).await
    }

    async fn load_facts(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError> {
        self.facts.load(partition, counters).await
    }

    async fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        self.facts.write(rows).await
    }

    async fn load_entries(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
        self.ledger.load(counter, actors).await
    }

    async fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        self.ledger.list(counter, bucket, after, limit).await
    }

    async fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        self.ledger.write(rows).await
    }

    async fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        self.facts.read_subject(subject).await
    }

    async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        self.facts.list_subjects(after, limit).await
    }

    async fn load_created(&self, counter: &CounterId) -> Result<Option<Created>, StoreError> {
        self.created.load(counter).await
    }

    async fn write_created(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError> {
        self.created.write(counter, created).await
    }

    async fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError> {
        self.progress.write(rows).await
    }

    async fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        self.progress.read(partitions).await
    }

    async fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        self.dead_letters.write(letters).await
    }

    async fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.dead_letters.read(partition, day, limit).await
    }
}
