//! The store embedded in the process: fjall, one folder, nothing to install.
//!
//! Invariant: one process holds the folder, and one writer at a time compares stamps, so the
//! newest fact stays; every write is on the disk before it is acknowledged.

mod created;
mod keys;
mod ledger;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tally_proto::{
    AsOf, BlobError, Checkpoint, CounterId, Fact, Lane, Layout, LedgerEntry, Offset, Partition,
    SubjectId,
};
use tally_service::stopper::Stopper;

use crate::port::{FactStore, StoreError};
use crate::rows::{Created, DeadLetter, FactRow, LedgerRow, Progress};

/// The version of the folder's contents.
const FORMAT: &[u8] = b"tally-store 1";

/// A store in a folder. Clones share it.
#[derive(Clone)]
pub struct EmbeddedStore(Arc<Tables>);

struct Tables {
    database: Database,
    meta: Keyspace,
    checkpoints: Keyspace,
    facts: Keyspace,
    ledger: Keyspace,
    progress: Keyspace,
    created: Keyspace,
    dead_letters: Keyspace,
    /// Held while stamps are compared and written.
    writer: Mutex<()>,
    /// Pulled when the folder takes no writes any more, for as long as it stays open.
    broken: Stopper,
}

/// A dead letter's value; its place is its key.
#[derive(Serialize, Deserialize)]
struct LetterBody {
    append_time_ms: i64,
    code: Box<str>,
    reason: Box<str>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        StoreError::Unavailable(error.to_string())
    }
}

fn is_poisoned(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(why) if *why == fjall::Error::Poisoned.to_string())
}

fn unreadable(row: impl std::fmt::Display, error: BlobError) -> StoreError {
    StoreError::Unreadable { row: row.to_string(), error }
}

fn damaged(row: impl std::fmt::Display, error: impl std::fmt::Display) -> StoreError {
    unreadable(row, BlobError::Damaged(error.to_string()))
}

impl EmbeddedStore {
    /// Opens the store of a folder, or makes one.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let database = Database::builder(folder)
            .open()
            .map_err(|error| StoreError::Unsuitable(error.to_string()))?;
        let keyspace = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
        let meta = keyspace("meta")?;
        match meta.get("format")? {
            Some(format) if *format == *FORMAT => {}
            Some(format) => {
                let found = String::from_utf8_lossy(&format).into_owned();
                let ours = String::from_utf8_lossy(FORMAT);
                return Err(StoreError::Unsuitable(format!(
                    "the folder {} holds '{found}', this build reads '{ours}'",
                    folder.display()
                )));
            }
            None => meta.insert("format", FORMAT)?,
        }
        let tables = Tables {
            checkpoints: keyspace("checkpoints")?,
            facts: keyspace("facts")?,
            ledger: keyspace("ledger")?,
            progress: keyspace("progress")?,
            created: keyspace("counters")?,
            dead_letters: keyspace("dead_letters")?,
            meta,
            database,
            writer: Mutex::new(()),
            broken: Stopper::new(),
        };
        tables.database.persist(PersistMode::SyncAll)?;
        Ok(EmbeddedStore(Arc::new(tables)))
    }

    /// Runs blocking work off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tables) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let tables = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&tables))
            .await
            .unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())));
        if done.as_ref().err().is_some_and(is_poisoned) {
            self.0.broken.stop();
        }
        done
    }
}

impl Tables {
    fn layout(&self) -> Result<Option<Layout>, StoreError> {
        let Some(json) = self.meta.get("layout")? else { return Ok(None) };
        serde_json::from_slice(&json).map(Some).map_err(|error| damaged("layout", error))
    }

    fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError> {
        let _writer = self.writer.lock();
        if let Some(in_force) = self.layout()? {
            return Ok(in_force);
        }
        let json = serde_json::to_vec(layout).map_err(|error| damaged("layout", error))?;
        self.meta.insert("layout", json)?;
        self.database.persist(PersistMode::SyncAll)?;
        Ok(layout.clone())
    }

    fn replace_layout(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        let _writer = self.writer.lock();
        let in_force = self.layout()?.unwrap_or_else(|| old.clone());
        if in_force != *old {
            return Ok(in_force);
        }
        let json = serde_json::to_vec(new).map_err(|error| damaged("layout", error))?;
        self.meta.insert("layout", json)?;
        self.database.persist(PersistMode::SyncAll)?;
        Ok(new.clone())
    }

    fn checkpoint(&self, partition: Partition) -> Result<Option<Checkpoint>, StoreError> {
        let Some(blob) = self.checkpoints.get(partition.0.to_be_bytes())? else { return Ok(None) };
        let row = || format!("checkpoint of partition {partition}");
        Checkpoint::decode(&blob).map(Some).map_err(|error| unreadable(row(), error))
    }

    fn write_checkpoint(&self, partition: Partition, new: &Checkpoint) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        let newer = |old: Checkpoint| (new.epoch, new.as_of) > (old.epoch, old.as_of);
        if self.checkpoint(partition)?.is_none_or(newer) {
            self.checkpoints.insert(partition.0.to_be_bytes(), new.encode().as_ref())?;
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn load_fact(
        &self,
        partition: Partition,
        counter: &CounterId,
    ) -> Result<Option<(Lane, Fact)>, StoreError> {
        let Some(last) = self.facts.prefix(keys::lanes(counter, partition)).next_back() else {
            return Ok(None);
        };
        let (key, blob) = last.into_inner()?;
        let fact = Fact::decode(&blob).map_err(|error| unreadable(counter, error))?;
        Ok(Some((Lane(key.last().copied().unwrap_or(0)), fact)))
    }

    fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for row in rows {
            let key = keys::fact(row);
            let kept = self.facts.get(&key)?.map(|blob| Fact::decode(&blob)).transpose();
            let kept = kept.map_err(|error| unreadable(&row.counter, error))?;
            let new = &row.fact;
            if kept.is_none_or(|kept| (new.epoch, new.as_of) > (kept.epoch, kept.as_of)) {
                batch.insert(&self.facts, key, new.encode().as_ref());
            }
        }
        Ok(batch.commit()?)
    }

    fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        let mut rows: Vec<FactRow> = Vec::new();
        for item in self.facts.prefix(keys::subject(subject)) {
            let (key, blob) = item.into_inner()?;
            let (kind, partition, lane) =
                keys::read_fact(&key, subject).ok_or_else(|| damaged(subject, "its key"))?;
            let fact = Fact::decode(&blob).map_err(|error| unreadable(subject, error))?;
            let counter = CounterId { subject: subject.clone(), kind: kind.into() };
            // Lanes come in rising order: a later one replaces the former.
            rows.pop_if(|last| last.counter == counter && last.partition == partition);
            rows.push(FactRow { counter, lane, partition, fact });
        }
        Ok(rows)
    }

    fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let mut subjects = Vec::new();
        let mut from = after.map_or_else(Vec::new, keys::after_subject);
        // One seek a subject: it may have many rows.
        while subjects.len() < limit {
            let Some(first) = self.facts.range(from..).next() else { break };
            let (key, _) = first.into_inner()?;
            let subject = keys::read_subject(&key).ok_or_else(|| damaged("fact", "its key"))?;
            from = keys::after_subject(&subject);
            subjects.push(subject);
        }
        Ok(subjects)
    }

    fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError> {
        for row in rows {
            let mut value = row.as_of.0.to_be_bytes().to_vec();
            value.extend(row.caught_up_at_ms.to_be_bytes());
            self.progress.insert(keys::progress(row), value)?;
        }
        Ok(()) // not synced: it says nothing that the facts do not hold
    }

    fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        let mut rows = Vec::new();
        for item in self.progress.range(..partitions.to_be_bytes().to_vec()) {
            let (key, value) = item.into_inner()?;
            rows.push(keys::read_progress(&key, &value).ok_or_else(|| damaged("progress", "?"))?);
        }
        Ok(rows)
    }

    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for letter in letters {
            let body = LetterBody {
                append_time_ms: letter.append_time_ms,
                code: letter.code.clone(),
                reason: letter.reason.clone(),
                key: letter.key.to_vec(),
                value: letter.value.to_vec(),
            };
            let value = serde_json::to_vec(&body).map_err(|error| damaged("dead letter", error))?;
            batch.insert(&self.dead_letters, keys::dead_letter(letter), value);
        }
        Ok(batch.commit()?)
    }

    fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let mut letters = Vec::new();
        for item in self.dead_letters.prefix(keys::day(partition, day)).take(limit) {
            let (key, value) = item.into_inner()?;
            let (offset, index) =
                keys::read_dead_letter(&key).ok_or_else(|| damaged("dead letter", "its key"))?;
            let body: LetterBody =
                serde_json::from_slice(&value).map_err(|error| damaged("dead letter", error))?;
            letters.push(DeadLetter {
                partition,
                offset: Offset(offset),
                index,
                append_time_ms: body.append_time_ms,
                code: body.code,
                reason: body.reason,
                key: body.key.into(),
                value: body.value.into(),
            });
        }
        Ok(letters)
    }
}

#[async_trait]
impl FactStore for EmbeddedStore {
    async fn broken(&self) -> String {
        self.0.broken.stopped().await;
        "the embedded store takes no writes any more (is its disk full?): make room, start it again"
            .into()
    }

    async fn layout(&self) -> Result<Option<Layout>, StoreError> {
        self.blocking(Tables::layout).await
    }

    async fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError> {
        let layout = layout.clone();
        self.blocking(move |tables| tables.create_layout(&layout)).await
    }

    async fn replace_layout(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        let (old, new) = (old.clone(), new.clone());
        self.blocking(move |tables| tables.replace_layout(&old, &new)).await
    }

    async fn load_checkpoint(
        &self,
        partition: Partition,
    ) -> Result<Option<Checkpoint>, StoreError> {
        self.blocking(move |tables| tables.checkpoint(partition)).await
    }

    async fn write_checkpoint(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        let checkpoint = *checkpoint;
        self.blocking(move |tables| tables.write_checkpoint(partition, &checkpoint)).await
    }

    async fn load_facts(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError> {
        let counters = counters.to_vec();
        let load = move |tables: &Tables| {
            counters.iter().map(|counter| tables.load_fact(partition, counter)).collect()
        };
        self.blocking(load).await
    }

    async fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let rows = rows.to_vec();
        self.blocking(move |tables| tables.write_facts(&rows)).await
    }

    async fn load_entries(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
        let (counter, actors) = (counter.clone(), actors.to_vec());
        let load = move |tables: &Tables| {
            actors.iter().map(|actor| tables.load_entry(&counter, actor)).collect()
        };
        self.blocking(load).await
    }

    async fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        let (counter, after) = (counter.clone(), after.map(str::to_owned));
        let list =
            move |tables: &Tables| tables.list_entries(&counter, bucket, after.as_deref(), limit);
        self.blocking(list).await
    }

    async fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let rows = rows.to_vec();
        self.blocking(move |tables| tables.write_entries(&rows)).await
    }

    async fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        let subject = subject.clone();
        self.blocking(move |tables| tables.read_subject(&subject)).await
    }

    async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let after = after.cloned();
        self.blocking(move |tables| tables.list_subjects(after.as_ref(), limit)).await
    }

    async fn load_created(&self, counter: &CounterId) -> Result<Option<Created>, StoreError> {
        let counter = counter.clone();
        self.blocking(move |tables| tables.load_created(&counter)).await
    }

    async fn write_created(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError> {
        let counter = counter.clone();
        self.blocking(move |tables| tables.write_created(&counter, created)).await
    }

    async fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError> {
        let rows = rows.to_vec();
        self.blocking(move |tables| tables.write_progress(&rows)).await
    }

    async fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        self.blocking(move |tables| tables.read_progress(partitions)).await
    }

    async fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        if letters.is_empty() {
            return Ok(());
        }
        let letters = letters.to_vec();
        self.blocking(move |tables| tables.write_dead_letters(&letters)).await
    }

    async fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.blocking(move |tables| tables.read_dead_letters(partition, day, limit)).await
    }
}

/// An as-of of eight big-endian bytes.
fn as_of(bytes: &[u8]) -> Option<AsOf> {
    Some(AsOf(u64::from_be_bytes(bytes.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_embedded_store_keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        crate::contract::run(Arc::new(EmbeddedStore::open(folder.path()).unwrap())).await;
    }

    #[tokio::test]
    async fn what_was_written_stands_after_it_was_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let counter = CounterId::new("default", "view", "a").unwrap();
        let fact = Fact {
            epoch: tally_proto::Epoch::FIRST,
            as_of: AsOf(3),
            generation: 0,
            total: 7,
            members: tally_proto::Members::None,
        };
        let row = FactRow {
            counter: counter.clone(),
            lane: Lane(0),
            partition: Partition(1),
            fact: fact.clone(),
        };
        let store = EmbeddedStore::open(folder.path()).unwrap();
        store.write_facts(&[row]).await.unwrap();
        drop(store);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let loaded = store.load_facts(Partition(1), &[counter]).await.unwrap();
        assert_eq!(loaded, [Some((Lane(0), fact))]);
    }
}
