//! The simulated log: partitions with holes, retention, lost answers, outages; consumers that
//! redeliver and skip; a group that gives a partition away before its owner knows.

mod consumer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_log::{
    AppendError, Bounds, Consume, EventLog, Found, LogConsumer, LogError, NewRecord, Polled, Record,
};
use tally_proto::{AsOf, Kinds, Offset, Partition};
use tally_service::clock::SharedClock;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use consumer::Consumer;

use crate::dice::Dice;
use crate::process::Process;
use crate::truth::Truth;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// What happens between log and consumers, of a thousand polls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Glitches {
    /// Records that were delivered come again.
    pub(crate) again: u64,
    /// Records are left out, once.
    pub(crate) skipped: u64,
    /// After a seek, records of before still come.
    pub(crate) stale: u64,
}

/// The log of a world. Clones share it.
#[derive(Clone)]
pub(crate) struct SimLog {
    state: Arc<Mutex<State>>,
    dice: Dice,
    clock: SharedClock,
    kinds: Arc<Kinds>,
}

struct State {
    partitions: Vec<Shard>,
    out_until: Instant,
    glitches: Glitches,
    holes: u64,
    members: BTreeMap<u64, Inbox>,
    joined: u64,
    owners: Vec<Option<u64>>,
}

type Inbox = Arc<Mutex<VecDeque<Polled>>>;

/// One partition.
#[derive(Default)]
struct Shard {
    /// By offset; `None`: a hole.
    slots: Vec<Option<Record>>,
    start: u64,
    /// What each version of it says, the present one last.
    versions: Vec<Truth>,
}

impl Shard {
    fn bounds(&self) -> Bounds {
        Bounds { start: Offset(self.start), end: Offset(self.slots.len() as u64) }
    }

    fn at(&self, offset: Offset) -> Option<&Record> {
        let at = usize::try_from(offset.0).ok()?;
        self.slots.get(at)?.as_ref().filter(|_| offset.0 >= self.start)
    }
}

impl SimLog {
    /// An empty log.
    pub(crate) fn new(partitions: u32, dice: Dice, clock: SharedClock, kinds: Arc<Kinds>) -> Self {
        let shard = |partition| Shard {
            versions: vec![Truth::new(Partition(partition), partitions)],
            ..Shard::default()
        };
        let state = State {
            partitions: (0..partitions).map(shard).collect(),
            out_until: Instant::now(),
            glitches: Glitches::default(),
            holes: 0,
            members: BTreeMap::new(),
            joined: 0,
            owners: vec![None; partitions as usize],
        };
        SimLog { state: Arc::new(Mutex::new(state)), dice, clock, kinds }
    }

    /// The log as one process reaches it.
    pub(crate) fn of(&self, process: &Process) -> Arc<dyn EventLog> {
        Arc::new(Client { log: self.clone(), process: process.clone() })
    }

    /// How consumers are treated, and how many of a thousand records come with a hole before them.
    pub(crate) fn trouble(&self, glitches: Glitches, holes: u64) {
        let mut state = self.state.lock();
        (state.glitches, state.holes) = (glitches, holes);
    }

    /// Nobody reaches the log for a time.
    pub(crate) fn outage(&self, time: Duration) {
        self.state.lock().out_until = Instant::now() + time;
    }

    fn is_out(&self) -> bool {
        self.state.lock().out_until > Instant::now()
    }

    /// What is appended without a client between: by any producer.
    pub(crate) fn append_now(&self, partition: Partition, record: NewRecord) -> Offset {
        let mut state = self.state.lock();
        let hole = self.dice.chance(state.holes);
        let shard = &mut state.partitions[partition.0 as usize];
        if hole {
            shard.slots.push(None);
        }
        let before = shard.slots.iter().rev().flatten().next().map_or(0, |r| r.append_time_ms);
        let record = Record {
            offset: Offset(shard.slots.len() as u64),
            append_time_ms: self.clock.unix_ms().max(before),
            key: record.key,
            value: record.value,
            content_type: record.content_type,
        };
        let offset = record.offset;
        tracing::debug!(%partition, %offset, "appended");
        shard.versions.last_mut().expect("one at least").apply(&self.kinds, &record);
        shard.slots.push(Some(record));
        offset
    }

    /// Retention takes what lies below `below`.
    pub(crate) fn retain(&self, partition: Partition, below: AsOf) {
        let shard = &mut self.state.lock().partitions[partition.0 as usize];
        shard.start = below.0.clamp(shard.start, shard.slots.len() as u64);
    }

    /// The log loses what stands from `from` on: truncated, or, with 0, made anew.
    pub(crate) fn lose(&self, partition: Partition, from: Offset) {
        let mut state = self.state.lock();
        let partitions = u32::try_from(state.partitions.len()).unwrap_or(1);
        let shard = &mut state.partitions[partition.0 as usize];
        tracing::debug!(%partition, %from, "the log loses all from here on");
        let from = usize::try_from(from.0).unwrap_or(usize::MAX).min(shard.slots.len());
        shard.slots.truncate(from);
        shard.start = shard.start.min(from as u64);
        let mut truth = Truth::new(partition, partitions);
        shard.slots.iter().flatten().for_each(|record| truth.apply(&self.kinds, record));
        shard.versions.push(truth);
    }

    /// Where a partition begins and ends.
    pub(crate) fn bounds(&self, partition: Partition) -> Bounds {
        self.state.lock().partitions[partition.0 as usize].bounds()
    }

    /// The last record of a partition, and the as-of of a fold that took it in.
    pub(crate) fn last(&self, partition: Partition) -> Option<Record> {
        self.state.lock().partitions[partition.0 as usize]
            .slots
            .iter()
            .rev()
            .flatten()
            .next()
            .cloned()
    }

    /// The record at an offset.
    pub(crate) fn record(&self, partition: Partition, offset: Offset) -> Option<Record> {
        let state = self.state.lock();
        state.partitions[partition.0 as usize].slots.get(usize::try_from(offset.0).ok()?)?.clone()
    }

    /// The first record from an offset on.
    pub(crate) fn record_from(&self, partition: Partition, from: Offset) -> Option<Record> {
        let state = self.state.lock();
        let mut records = state.partitions[partition.0 as usize].slots.iter().flatten();
        records.find(|record| record.offset >= from).cloned()
    }

    /// Asks each version of a partition, the present one last.
    pub(crate) fn versions<T>(&self, partition: Partition, ask: impl FnMut(&Truth) -> T) -> Vec<T> {
        self.state.lock().partitions[partition.0 as usize].versions.iter().map(ask).collect()
    }

    /// Asks the present version of a partition.
    pub(crate) fn truth<T>(&self, partition: Partition, ask: impl FnOnce(&Truth) -> T) -> T {
        let state = self.state.lock();
        ask(state.partitions[partition.0 as usize].versions.last().expect("one at least"))
    }

    /// The end that a fold can reach of what was appended before `at_ms`.
    pub(crate) fn end_before(&self, partition: Partition, at_ms: i64) -> AsOf {
        let state = self.state.lock();
        let slots = &state.partitions[partition.0 as usize].slots;
        let earlier = slots.iter().flatten().filter(|record| record.append_time_ms < at_ms);
        earlier.last().map_or(AsOf::ZERO, |record| record.offset.as_of())
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        let partitions = u32::try_from(self.state.lock().partitions.len()).unwrap_or(u32::MAX);
        (0..partitions).map(Partition)
    }

    /// Deals the partitions anew: the next owners hear of it at once, the former ones later.
    pub(crate) fn rebalance(&self) {
        let mut state = self.state.lock();
        let members: Vec<u64> = state.members.keys().copied().collect();
        for partition in 0..state.owners.len() {
            let next = (!members.is_empty()).then(|| *self.dice.pick(&members));
            let former = std::mem::replace(&mut state.owners[partition], next);
            if former == next {
                continue;
            }
            tracing::debug!(partition, ?former, ?next, "another member owns it");
            let named = Partition(u32::try_from(partition).unwrap_or(u32::MAX));
            if let Some(former) = former {
                let (log, wait) = (self.clone(), self.dice.millis(0, 3_000));
                tokio::spawn(async move {
                    sleep(wait).await;
                    log.revoke(former, named);
                });
            }
            if let Some(inbox) = next.and_then(|member| state.members.get(&member)) {
                inbox.lock().push_back(Polled::Assigned(vec![named]));
            }
        }
    }

    /// A former owner hears that it is none any more, unless it is again.
    fn revoke(&self, member: u64, partition: Partition) {
        let state = self.state.lock();
        if state.owners[partition.0 as usize] != Some(member)
            && let Some(inbox) = state.members.get(&member)
        {
            inbox.lock().push_back(Polled::Revoked(vec![partition]));
        }
    }

    fn join(&self) -> (u64, Inbox) {
        let mut state = self.state.lock();
        state.joined += 1;
        let (member, inbox) = (state.joined, Inbox::default());
        state.members.insert(member, inbox.clone());
        drop(state);
        self.rebalance();
        (member, inbox)
    }

    fn leave(&self, member: u64) {
        let log = self.clone();
        let wait = self.dice.millis(0, 1_000);
        log.state.lock().members.remove(&member);
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(async move {
                sleep(wait).await;
                log.rebalance();
            });
        }
    }
}

/// The log through the network of one process.
struct Client {
    log: SimLog,
    process: Process,
}

impl Client {
    /// Asks, and waits for the answer.
    async fn ask<T>(&self, answer: impl FnOnce(&State) -> T) -> Result<T, LogError> {
        let away = || LogError::Unavailable("no answer".into());
        let asking = async {
            self.process.awake().await;
            self.process.travel().await.map_err(|_| away())?;
            if self.log.is_out() {
                return Err(away());
            }
            let answer = answer(&self.log.state.lock());
            self.process.travel().await.map_err(|_| away())?;
            Ok(answer)
        };
        let answer = timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(away()));
        self.process.awake().await;
        answer
    }
}

#[async_trait]
impl EventLog for Client {
    fn cluster(&self) -> &str {
        "simulated"
    }

    fn topic(&self) -> &str {
        "events"
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.log.partitions().count()).unwrap_or(u32::MAX)
    }

    async fn append(&self, partition: Partition, record: NewRecord) -> Result<Offset, AppendError> {
        self.process.awake().await;
        if self.log.is_out() && self.log.dice.chance(500) {
            return Err(AppendError::Refused("no leader".into()));
        }
        let doubt = || AppendError::InDoubt("no answer".into());
        let (tell, told) = oneshot::channel();
        let sent = self.process.message();
        let log = self.log.clone();
        // What was sent arrives, whether or not the sender lives to hear of it.
        tokio::spawn(async move {
            let Ok(time) = sent else { return };
            sleep(time).await;
            if !log.is_out() {
                tell.send(log.append_now(partition, record)).ok();
            }
        });
        let answered = async {
            let offset = told.await.map_err(|_| doubt());
            match offset {
                Ok(offset) if self.process.travel().await.is_ok() => Ok(offset),
                _ => std::future::pending().await,
            }
        };
        let answer = timeout(PATIENCE, answered).await.unwrap_or_else(|_| Err(doubt()));
        self.process.awake().await;
        answer
    }

    async fn read_at(&self, partition: Partition, offset: Offset) -> Result<Found, LogError> {
        self.ask(|state| {
            let shard = &state.partitions[partition.0 as usize];
            shard.at(offset).map_or(Found::Nothing(shard.bounds()), |record| {
                Found::Record(record.fingerprint())
            })
        })
        .await
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, LogError> {
        self.ask(|state| state.partitions[partition.0 as usize].bounds()).await
    }

    async fn first_from(
        &self,
        partition: Partition,
        from: Offset,
    ) -> Result<Option<Offset>, LogError> {
        self.ask(|state| {
            let shard = &state.partitions[partition.0 as usize];
            let mut offsets = (from.0..shard.bounds().end.0).map(Offset);
            offsets.find(|o| shard.at(*o).is_some()).filter(|_| from.0 >= shard.start)
        })
        .await
    }

    fn consumer(&self, consume: Consume) -> Result<Box<dyn LogConsumer>, LogError> {
        let (member, inbox) = match consume {
            Consume::Assign(partitions) => {
                let inbox = Inbox::default();
                inbox.lock().push_back(Polled::Assigned(partitions));
                (None, inbox)
            }
            Consume::Group(_) => {
                let (member, inbox) = self.log.join();
                (Some(member), inbox)
            }
        };
        let (log, process) = (self.log.clone(), self.process.clone());
        Ok(Box::new(Consumer::new(log, process, member, inbox)))
    }
}
