//! The simulated store as one process reaches it: quorums, lost messages, and the oracle's ear.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_proto::{
    Checkpoint, CounterId, Fact, Lane, Layout, LedgerEntry, Offset, Partition, PositionError,
    Stamp, SubjectId,
};
use tally_service::mutant;
use tally_store::{Created, DeadLetter, FactRow, FactStore, LedgerRow, Progress, StoreError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{
    Cell, Cells, Key, OPERATOR, QUORUM, REPLICAS, SimStore, Value, entry_of, fact_of, keep_newest,
    lanes,
};
use crate::process::{Lost, Process};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(400);

/// A write under way: who has acked what.
struct Write {
    acks: Mutex<Vec<u8>>,
    acked: Notify,
}

impl Write {
    fn ack(&self, cells: &[usize]) {
        let mut acks = self.acks.lock();
        cells.iter().for_each(|cell| acks[*cell] += 1);
        let needed = if mutant!("write-one") { 1 } else { QUORUM };
        if acks.iter().all(|acks| *acks >= needed) {
            self.acked.notify_one();
        }
    }
}

/// The store through the network of one process.
pub(super) struct Client {
    pub(super) store: SimStore,
    pub(super) process: Process,
}

impl Client {
    /// Sends cells to all replicas, and waits until each cell has its quorum.
    async fn write(&self, cells: Vec<(Key, Cell)>) -> Result<(), StoreError> {
        if cells.is_empty() {
            return Ok(());
        }
        self.process.awake().await;
        let cells: Arc<[(Key, Cell)]> = cells.into();
        let write =
            Arc::new(Write { acks: Mutex::new(vec![0; cells.len()]), acked: Notify::new() });
        for replica in 0..REPLICAS {
            for message in self.messages(cells.len()) {
                let (Ok(there), back) = (self.process.message(), self.process.message()) else {
                    continue;
                };
                let (store, cells, write) = (self.store.clone(), cells.clone(), write.clone());
                // What was sent arrives, whether or not the sender lives to hear of it.
                tokio::spawn(async move {
                    sleep(there).await;
                    if store.apply(replica, &cells, &message).await
                        && let Ok(back) = back
                    {
                        sleep(back).await;
                        write.ack(&message);
                    }
                });
            }
        }
        let answer = timeout(PATIENCE, write.acked.notified()).await;
        self.process.awake().await;
        answer.map_err(|_| StoreError::Unavailable("no quorum".into()))
    }

    /// How the cells of a write travel: mostly as one message, else each on its own.
    fn messages(&self, cells: usize) -> Vec<Vec<usize>> {
        if cells > 1 && self.store.dice.chance(250) {
            (0..cells).map(|cell| vec![cell]).collect()
        } else {
            vec![(0..cells).collect()]
        }
    }

    /// What a quorum of replicas says: the newest cell of each key.
    async fn read(&self, select: impl Fn(&Cells) -> Cells) -> Result<Cells, StoreError> {
        let away = |_| StoreError::Unavailable("no quorum".into());
        let dice = &self.store.dice;
        let first = usize::try_from(dice.below(3)).unwrap_or(0);
        let step = usize::try_from(dice.between(1, 2)).unwrap_or(1);
        let asked: &[usize] = &[first, (first + step) % REPLICAS, (first + 2 * step) % REPLICAS];
        let reading = async {
            self.process.awake().await;
            self.process.travel().await?;
            let mut newest = Cells::new();
            let mut answers = 0;
            let needed = if mutant!("read-one") { 1 } else { QUORUM };
            for replica in asked {
                {
                    let replica = &self.store.replicas.lock()[*replica];
                    if replica.is_down {
                        continue;
                    }
                    for (key, cell) in select(&replica.memory) {
                        keep_newest(&mut newest, &key, &cell);
                    }
                }
                answers += 1;
                if answers == needed {
                    self.process.travel().await?;
                    return Ok(newest);
                }
                self.process.travel().await?;
            }
            Err(Lost)
        };
        let answer = timeout(PATIENCE, reading).await.unwrap_or(Err(Lost));
        self.process.awake().await;
        answer.map_err(away)
    }

    fn cell(&self, stamp: Result<Stamp, PositionError>, value: Value) -> Cell {
        let stamp = stamp.expect("simulated places are small").raw();
        let by_arrival = self.store.clock.unix_ms();
        Cell { stamp: if mutant!("wall-clock-stamps") { by_arrival } else { stamp }, value }
    }

    fn now(&self) -> i64 {
        self.store.clock.unix_ms()
    }
}

#[async_trait]
impl FactStore for Client {
    async fn layout(&self) -> Result<Option<Layout>, StoreError> {
        Ok(None)
    }

    async fn create_layout(&self, layout: &Layout) -> Result<Layout, StoreError> {
        Ok(layout.clone())
    }

    async fn replace_layout(&self, _old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        Ok(new.clone())
    }

    async fn load_checkpoint(
        &self,
        partition: Partition,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let key = Key::Checkpoint(partition);
        let found = self
            .read(|cells| {
                cells.get_key_value(&key).map(|(k, c)| (k.clone(), c.clone())).into_iter().collect()
            })
            .await?;
        Ok(found.into_values().find_map(|cell| match cell.value {
            Value::Blob(blob) => Checkpoint::decode(&blob).ok(),
            _ => None,
        }))
    }

    async fn write_checkpoint(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        self.process.awake().await;
        tracing::debug!(who = self.process.name(), %partition, as_of = %checkpoint.as_of, "checkpoint sent");
        if self.process.name() == OPERATOR {
            self.store.oracle.on_freeze(partition, checkpoint);
        } else {
            self.store.oracle.on_checkpoint(&self.store, partition, checkpoint);
        }
        let cell = self.cell(checkpoint.stamp(), Value::Blob(checkpoint.encode()));
        self.write(vec![(Key::Checkpoint(partition), cell)]).await
    }

    async fn load_facts(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError> {
        let select = |cells: &Cells| {
            let rows = counters.iter().flat_map(|counter| cells.range(lanes(counter, partition)));
            rows.map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let found = self.read(select).await?;
        let who = self.process.name();
        let newest = |counter: &CounterId| {
            let base = found.range(lanes(counter, partition)).next_back();
            let base = base.and_then(|(_, cell)| fact_of(cell)).map(|f| (f.as_of.0, f.total));
            tracing::debug!(who, %partition, %counter, ?base, "base loaded");
            let (key, cell) = found.range(lanes(counter, partition)).next_back()?;
            match key {
                Key::Fact(_, _, _, lane) => Some((*lane, fact_of(cell)?)),
                _ => None,
            }
        };
        Ok(counters.iter().map(newest).collect())
    }

    async fn write_facts(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        self.process.awake().await;
        for row in rows {
            let (who, partition, fact) = (self.process.name(), row.partition, &row.fact);
            let (counter, as_of, total) = (&row.counter, fact.as_of, fact.total);
            tracing::debug!(who, %partition, %counter, %as_of, total, "fact sent");
            if who == OPERATOR {
                self.store.oracle.on_rebase(row);
            } else {
                self.store.oracle.on_fact(row);
            }
        }
        let cell = |row: &FactRow| {
            let SubjectId { .. } = row.counter.subject;
            let (subject, kind) = (row.counter.subject.clone(), row.counter.kind.clone());
            let key = Key::Fact(subject, kind, row.partition, row.lane);
            (key, self.cell(row.fact.stamp(), Value::Blob(row.fact.encode())))
        };
        self.write(rows.iter().map(cell).collect()).await
    }

    async fn load_entries(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
        let keys: Vec<Key> =
            actors.iter().cloned().map(|actor| Key::Entry(counter.clone(), actor)).collect();
        let select = |cells: &Cells| {
            let found = keys.iter().filter_map(|key| cells.get_key_value(key));
            found.map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let found = self.read(select).await?;
        Ok(keys.iter().map(|key| found.get(key).and_then(entry_of)).collect())
    }

    async fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        let is_it = |key: &Key| match key {
            Key::Entry(of, actor) => {
                of == counter
                    && LedgerEntry::bucket(actor) == bucket
                    && after.is_none_or(|after| **actor > *after)
            }
            _ => false,
        };
        let select = |cells: &Cells| {
            let found = cells.iter().filter(|(key, _)| is_it(key));
            found.map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let entry = |(key, cell): (Key, Cell)| match key {
            Key::Entry(_, actor) => Some((actor, entry_of(&cell)?)),
            _ => None,
        };
        let found = self.read(select).await?;
        Ok(found.into_iter().filter_map(entry).take(limit).collect())
    }

    async fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        self.process.awake().await;
        for LedgerRow { counter, actor, entry } in rows {
            let (who, as_of, is_in) = (self.process.name(), entry.as_of, entry.is_in);
            tracing::debug!(who, %counter, %actor, %as_of, is_in, "entry sent");
            self.store.oracle.on_entry(counter, actor, entry);
        }
        let cell = |row: &LedgerRow| {
            let key = Key::Entry(row.counter.clone(), row.actor.clone());
            (key, self.cell(row.entry.stamp(), Value::Blob(row.entry.encode())))
        };
        self.write(rows.iter().map(cell).collect()).await
    }

    async fn read_subject(&self, subject: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        let select = |cells: &Cells| {
            let first = Key::Fact(subject.clone(), "".into(), Partition(0), Lane(0));
            let of_subject = |key: &Key| matches!(key, Key::Fact(other, ..) if other == subject);
            let rows = cells.range(first..).take_while(|(key, _)| of_subject(key));
            rows.map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let mut newest = BTreeMap::new();
        for (key, cell) in self.read(select).await? {
            let Key::Fact(subject, kind, partition, lane) = key else { continue };
            let Some(fact) = fact_of(&cell) else { continue };
            let counter = CounterId { subject, kind: kind.clone() };
            newest.insert((kind, partition), FactRow { counter, lane, partition, fact });
        }
        Ok(newest.into_values().collect())
    }

    async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let found = self.read(Clone::clone).await?;
        let mut subjects: Vec<SubjectId> = found
            .into_keys()
            .filter_map(|key| match key {
                Key::Fact(subject, ..) if after.is_none_or(|after| subject > *after) => {
                    Some(subject)
                }
                _ => None,
            })
            .collect();
        subjects.dedup();
        subjects.truncate(limit);
        Ok(subjects)
    }

    async fn load_created(&self, _: &CounterId) -> Result<Option<Created>, StoreError> {
        Ok(None) // nobody creates counters here
    }

    async fn write_created(&self, _: &CounterId, _: Option<Created>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn write_progress(&self, rows: &[Progress]) -> Result<(), StoreError> {
        let cell = |row: &Progress| {
            let key = Key::Progress(row.partition, row.aggregator.clone());
            (key, Cell { stamp: self.now(), value: Value::Progress(row.clone()) })
        };
        self.write(rows.iter().map(cell).collect()).await
    }

    async fn read_progress(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        let select = |cells: &Cells| {
            let (first, last) = (
                Key::Progress(Partition(0), "".into()),
                Key::Progress(Partition(partitions), "".into()),
            );
            cells.range(first..last).map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let found = self.read(select).await?;
        Ok(found
            .into_values()
            .filter_map(|cell| match cell.value {
                Value::Progress(row) => Some(row),
                _ => None,
            })
            .collect())
    }

    async fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let cell = |letter: &DeadLetter| {
            let key = Key::DeadLetter(letter.partition, letter.day(), letter.offset, letter.index);
            (key, Cell { stamp: self.now(), value: Value::DeadLetter(letter.clone()) })
        };
        self.write(letters.iter().map(cell).collect()).await
    }

    async fn read_dead_letters(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let select = |cells: &Cells| {
            let all = Key::DeadLetter(partition, day, Offset(0), 0)
                ..=Key::DeadLetter(partition, day, Offset(u64::MAX), u32::MAX);
            cells.range(all).map(|(key, cell)| (key.clone(), cell.clone())).collect()
        };
        let found = self.read(select).await?;
        let letters = found.into_values().filter_map(|cell| match cell.value {
            Value::DeadLetter(letter) => Some(letter),
            _ => None,
        });
        Ok(letters.take(limit).collect())
    }
}
