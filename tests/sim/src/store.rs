//! The simulated store: three replicas that keep the cell with the largest timestamp. Writes reach
//! each of them on their own, late, in any order or never; what was not synced is gone after a
//! power cut.

mod client;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tally_proto::{Checkpoint, CounterId, Fact, Lane, LedgerEntry, Offset, Partition, SubjectId};
use tally_service::clock::SharedClock;
use tally_service::mutant;
use tally_store::{DeadLetter, FactStore, Progress};
use tokio::time::sleep;

use client::Client;

use crate::dice::Dice;
use crate::oracle::Oracle;
use crate::process::Process;

/// The process that moves rows to another epoch.
pub(crate) const OPERATOR: &str = "operator";

const REPLICAS: usize = 3;
const QUORUM: u8 = 2;

/// The name of a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A fact.
    Fact(SubjectId, Box<str>, Partition, Lane),
    /// A checkpoint.
    Checkpoint(Partition),
    /// An entry of the ledger.
    Entry(CounterId, Box<str>),
    /// A progress row.
    Progress(Partition, Box<str>),
    /// A dead letter: partition, day, offset, index.
    DeadLetter(Partition, i32, Offset, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Blob(Bytes),
    Progress(Progress),
    DeadLetter(DeadLetter),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    stamp: i64,
    value: Value,
}

type Cells = BTreeMap<Key, Cell>;

fn keep_newest(cells: &mut Cells, key: &Key, cell: &Cell) {
    match cells.get_mut(key) {
        Some(kept) if kept.stamp >= cell.stamp => {}
        Some(kept) => *kept = cell.clone(),
        None => {
            cells.insert(key.clone(), cell.clone());
        }
    }
}

/// One replica.
#[derive(Default)]
struct Replica {
    memory: Cells,
    disk: Cells,
    is_down: bool,
    /// How often it has lost its memory.
    lives: u64,
}

/// The store of a world. Clones share it.
#[derive(Clone)]
pub(crate) struct SimStore {
    replicas: Arc<Mutex<[Replica; REPLICAS]>>,
    dice: Dice,
    clock: SharedClock,
    oracle: Oracle,
}

impl SimStore {
    /// An empty store.
    pub(crate) fn new(dice: Dice, clock: SharedClock, oracle: Oracle) -> Self {
        SimStore { replicas: Arc::default(), dice, clock, oracle }
    }

    /// The store as one process reaches it.
    pub(crate) fn of(&self, process: &Process) -> Arc<dyn FactStore> {
        Arc::new(Client { store: self.clone(), process: process.clone() })
    }

    /// A replica goes away, or comes back with all that it had.
    pub(crate) fn set_down(&self, replica: usize, is_down: bool) {
        self.replicas.lock()[replica % REPLICAS].is_down = is_down;
    }

    /// A replica loses what was not synced.
    pub(crate) fn cut_power(&self, replica: usize) {
        let replica = &mut self.replicas.lock()[replica % REPLICAS];
        replica.memory = replica.disk.clone();
        replica.lives += 1;
    }

    /// What no quorum can miss of a counter's facts in a partition: the newest that two disks hold.
    pub(crate) fn durable(&self, counter: &CounterId, partition: Partition) -> Option<Fact> {
        let replicas = self.replicas.lock();
        let newest = |replica: &Replica| {
            let (_, cell) = replica.disk.range(lanes(counter, partition)).next_back()?;
            fact_of(cell)
        };
        let mut facts: Vec<Option<Fact>> = replicas.iter().map(newest).collect();
        facts.sort_by_key(|fact| Reverse(fact.as_ref().map(|fact| (fact.epoch, fact.as_of))));
        facts.swap_remove(usize::from(QUORUM) - 1)
    }

    /// What no quorum can miss of an actor's entry.
    pub(crate) fn durable_entry(&self, counter: &CounterId, actor: &str) -> Option<LedgerEntry> {
        let key = Key::Entry(counter.clone(), actor.into());
        let replicas = self.replicas.lock();
        let of = |replica: &Replica| entry_of(replica.disk.get(&key)?);
        let mut entries: Vec<Option<LedgerEntry>> = replicas.iter().map(of).collect();
        entries.sort_by_key(|entry| Reverse(entry.map(|entry| (entry.epoch, entry.as_of))));
        entries[usize::from(QUORUM) - 1]
    }

    /// The newest checkpoint that any replica holds: whoever reads it may go on from there.
    pub(crate) fn newest_checkpoint(&self, partition: Partition) -> Option<Checkpoint> {
        self.checkpoints(partition).first().copied().flatten()
    }

    /// The newest checkpoint that no quorum can miss.
    pub(crate) fn checkpoint(&self, partition: Partition) -> Option<Checkpoint> {
        self.checkpoints(partition)[usize::from(QUORUM) - 1]
    }

    /// What each replica has on its disk, the newest first.
    fn checkpoints(&self, partition: Partition) -> Vec<Option<Checkpoint>> {
        let replicas = self.replicas.lock();
        let of = |replica: &Replica| match &replica.disk.get(&Key::Checkpoint(partition))?.value {
            Value::Blob(blob) => Checkpoint::decode(blob).ok(),
            _ => None,
        };
        let mut found: Vec<Option<Checkpoint>> = replicas.iter().map(of).collect();
        found.sort_by_key(|found| Reverse(found.map(|found| (found.epoch, found.as_of))));
        found
    }
}

fn lanes(counter: &CounterId, partition: Partition) -> RangeInclusive<Key> {
    let key =
        |lane| Key::Fact(counter.subject.clone(), counter.kind.clone(), partition, Lane(lane));
    key(0)..=key(u8::MAX)
}

fn entry_of(cell: &Cell) -> Option<LedgerEntry> {
    match &cell.value {
        Value::Blob(blob) => LedgerEntry::decode(blob).ok(),
        _ => None,
    }
}

fn fact_of(cell: &Cell) -> Option<Fact> {
    match &cell.value {
        Value::Blob(blob) => Fact::decode(blob).ok(),
        _ => None,
    }
}

impl SimStore {
    /// A replica takes in some cells; says whether it may ack them.
    async fn apply(&self, replica: usize, cells: &[(Key, Cell)], message: &[usize]) -> bool {
        let lives = {
            let replica = &mut self.replicas.lock()[replica];
            if replica.is_down {
                return false;
            }
            for (key, cell) in message.iter().map(|at| &cells[*at]) {
                keep_newest(&mut replica.memory, key, cell);
            }
            replica.lives
        };
        let sync = self.dice.millis(0, 3);
        let synced = self.clone().sync(replica, lives, cells.to_vec(), message.to_vec());
        if mutant!("ack-before-sync") {
            tokio::spawn(async move {
                sleep(Duration::from_secs(10)).await;
                synced()
            });
            return true;
        }
        sleep(sync).await;
        synced()
    }

    /// Writes what a replica took in to its disk, unless it lost its memory since.
    fn sync(
        self,
        replica: usize,
        lives: u64,
        cells: Vec<(Key, Cell)>,
        message: Vec<usize>,
    ) -> impl FnOnce() -> bool + Send + 'static {
        move || {
            let replica = &mut self.replicas.lock()[replica];
            if replica.lives != lives {
                return false;
            }
            for (key, cell) in message.iter().map(|at| &cells[*at]) {
                keep_newest(&mut replica.disk, key, cell);
            }
            true
        }
    }
}
