//! The store in memory: for tests and trials; gone with the process.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_proto::{
    Checkpoint, CounterId, Fact, Lane, Layout, LedgerEntry, Offset, Partition, SubjectId,
};

use crate::port::{FactStore, StoreError};
use crate::rows::{Created, DeadLetter, FactRow, LedgerRow, Progress};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    layout: Option<Layout>,
    checkpoints: BTreeMap<Partition, Checkpoint>,
    facts: BTreeMap<SubjectId, BTreeMap<FactKey, Fact>>,
    ledger: BTreeMap<(CounterId, Box<str>), LedgerEntry>,
    progress: BTreeMap<(Partition, Box<str>), Progress>,
    created: BTreeMap<CounterId, Created>,
    dead_letters: BTreeMap<(Partition, i32, Offset, u32), DeadLetter>,
}

/// Kind, partition, lane: so that the last of a partition is the lane in use.
type FactKey = (Box<str>, Partition, Lane);

#[async_trait]
impl FactStore for MemoryStore {
    async fn layout(&self) -> Result<Option<Layout>, StoreError> {
        Ok(self.0.lock().layout.clone())
    }

    async fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError> {
        Ok(self.0.lock().layout.get_or_insert_with(|| layout.clone()).clone())
    }

    async fn replace_layout(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        let in_force = &mut self.0.lock().layout;
        if in_force.as_ref() == Some(old) {
            *in_force = Some(new.clone());
        }
        Ok(in_force.clone().unwrap_or_else(|| old.clone()))
    }

    async fn load_checkpoint(
        &self,
        partition: Partition,
    ) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.0.lock().checkpoints.get(&partition).copied())
    }

    async fn write_checkpoint(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        let kept = tables.checkpoints.entry(partition).or_insert(*checkpoint);
        if (checkpoint.epoch, checkpoint.as_of) > (kept.epoch, kept.as_of) {
            *kept = *checkpoint;
        }
        Ok(())
    }

    async fn load_facts(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError> {
        let tables = self.0.lock();
        let load = |counter: &CounterId| {
            let lanes = (counter.kind.clone(), partition, Lane(0))
                ..=(counter.kind.clone(), partition, Lane(u8::MAX));
            let (key, fact) = tables.facts.get(&counter.subject)?.range(lanes).next_back()?;
            Some((key.2, fact.clone()))
        };
        Ok(counters.iter().map(load).collect())
    }

    async fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        for row in rows {
            let subject = tables.facts.entry(row.counter.subject.clone()).or_default();
            let key = (row.counter.kind.clone(), row.partition, row.lane);
            let kept = subject.entry(key).or_insert_with(|| row.fact.clone());
            if (row.fact.epoch, row.fact.as_of) > (kept.epoch, kept.as_of) {
                *kept = row.fact.clone();
            }
        }
        Ok(())
    }

    async fn load_entries(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
        let tables = self.0.lock();
        let load = |actor| tables.ledger.get(&(counter.clone(), actor)).copied();
        Ok(actors.iter().cloned().map(load).collect())
    }

    async fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        let tables = self.0.lock();
        let from = (counter.clone(), Box::from(after.unwrap_or_default()));
        let entries = tables
            .ledger
            .range((Bound::Excluded(from), Bound::Unbounded))
            .take_while(|((of, _), _)| of == counter)
            .filter(|((_, actor), _)| LedgerEntry::bucket(actor) == bucket);
        Ok(entries.take(limit).map(|((_, actor), entry)| (actor.clone(), *entry)).collect())
    }

    async fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        for LedgerRow { counter, actor, entry } in rows {
            let kept = tables.ledger.entry((counter.clone(), actor.clone())).or_insert(*entry);
            if (entry.epoch, entry.as_of) > (kept.epoch, kept.as_of) {
                *kept = *entry;
            }
        }
        Ok(())
    }

    async fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        let tables = self.0.lock();
        let mut newest: BTreeMap<(&str, Partition), FactRow> = BTreeMap::new();
        for ((kind, partition, lane), fact) in tables.facts.get(subject).into_iter().flatten() {
            let counter = CounterId { subject: subject.clone(), kind: kind.clone() };
            let row = FactRow { counter, lane: *lane, partition: *partition, fact: fact.clone() };
            newest.insert((kind, *partition), row); // lanes come in rising order
        }
        Ok(newest.into_values().collect())
    }

    async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.0.lock();
        let subjects = tables.facts.range::<SubjectId, _>((from, Bound::Unbounded));
        Ok(subjects.take(limit).map(|(subject, _)| subject.clone()).collect())
    }

    async fn load_created(&self, counter: &CounterId) -> Result<Option<Created>, StoreError> {
        Ok(self.0.lock().created.get(counter).copied())
    }

    async fn write_created(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        match created {
            Some(created) => tables.created.insert(counter.clone(), created),
            None => tables.created.remove(counter),
        };
        Ok(())
    }

    async fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        for row in rows {
            tables.progress.insert((row.partition, row.aggregator.clone()), row.clone());
        }
        Ok(())
    }

    async fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        let tables = self.0.lock();
        let rows = tables.progress.values().filter(|row| row.partition.0 < partitions);
        Ok(rows.cloned().collect())
    }

    async fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let mut tables = self.0.lock();
        for letter in letters {
            let key = (letter.partition, letter.day(), letter.offset, letter.index);
            tables.dead_letters.insert(key, letter.clone());
        }
        Ok(())
    }

    async fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let tables = self.0.lock();
        let all = (partition, day, Offset(0), 0)..=(partition, day, Offset(u64::MAX), u32::MAX);
        Ok(tables.dead_letters.range(all).take(limit).map(|(_, letter)| letter.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_store_in_memory_keeps_the_contract() {
        crate::contract::run(std::sync::Arc::new(MemoryStore::default())).await;
    }
}
