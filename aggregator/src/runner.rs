//! The runner: the only `select!`. Polls, feeds engines, sends out what they ask for.

mod flushing;
mod watching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tally_log::{Consume, EventLog, Polled};
use tally_proto::{AsOf, Checkpoint, Epoch, Kinds, Offset, Partition};
use tally_service::clock::{self, SharedClock};
use tally_service::health::Health;
use tally_service::metrics::Metrics;
use tally_service::stopper::Stopper;
use tally_store::FactStore;
use tokio::task::JoinSet;

use crate::engine::{Engine, EngineLimits};
use crate::metrics::{self, AggregatorMetrics};
use crate::owned::{Next, Owned};
use crate::poller::Poller;
use crate::settings::{AggregatorSettings, FlushSettings, parse_partitions};
use crate::tasks::{Done, Work};

/// How often due work is looked for.
const TICK: Duration = Duration::from_millis(20);

/// Counters a load asks for at once, and loads of one partition under way at once.
const LOAD_COUNTERS: usize = 128;
const LOADS_IN_FLIGHT: usize = 4;

/// Loads of one counter's entries each, of one partition, under way at once.
const ENTRY_LOADS_IN_FLIGHT: usize = 64;

/// What an aggregator needs.
pub struct Context {
    /// Where events come from.
    pub log: Arc<dyn EventLog>,
    /// Where facts go.
    pub store: Arc<dyn FactStore>,
    /// The epoch of the layout.
    pub epoch: Epoch,
    /// The kinds that the fold knows.
    pub kinds: Arc<Kinds>,
    /// `[aggregator]`.
    pub settings: AggregatorSettings,
    /// What bounds the memory of one partition.
    pub limits: EngineLimits,
    /// `[flush]`.
    pub flush: FlushSettings,
    /// The name under which progress is written.
    pub id: String,
    /// Time.
    pub clock: SharedClock,
    /// For `/readyz`.
    pub health: Health,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// When to stop.
    pub stopper: Stopper,
}

/// Runs an aggregator until it is stopped; then flushes once more.
pub async fn run(context: Context) -> anyhow::Result<()> {
    let partitions = context.log.partitions();
    let consume = match &context.settings.assign {
        Some(list) => Consume::Assign(parse_partitions(list, partitions)?),
        None => Consume::Group(context.settings.group.clone()),
    };
    let consumer = context.log.consumer(consume).context("cannot read the log")?;
    let poller = Poller::start(consumer).context("cannot start the polling thread")?;
    let work = Work {
        log: context.log,
        store: context.store,
        clock: context.clock,
        health: context.health,
        stopper: context.stopper,
        epoch: context.epoch,
        retry_window: context.kinds.retry_window(),
    };
    let mut runner = Runner {
        metrics: AggregatorMetrics::new(&context.metrics),
        work,
        kinds: context.kinds,
        limits: context.limits,
        flush_interval: context.flush.interval(),
        id: context.id.into(),
        poller,
        tasks: JoinSet::new(),
        ends: JoinSet::new(),
        progress: JoinSet::new(),
        owned: BTreeMap::new(),
        assignments: 0,
        floors: BTreeMap::new(),
        next_ends: Duration::ZERO,
        next_progress: Duration::MAX,
    };
    runner.run().await
}

/// A task's result, with the partition and assignment that it belongs to.
type TaskResult = (Partition, u64, Done);

struct Runner {
    work: Work,
    kinds: Arc<Kinds>,
    limits: EngineLimits,
    flush_interval: Duration,
    id: Box<str>,
    metrics: AggregatorMetrics,
    poller: Poller,
    tasks: JoinSet<TaskResult>,
    ends: JoinSet<Vec<(Partition, i64, Offset)>>,
    progress: JoinSet<()>,
    owned: BTreeMap<Partition, Owned>,
    assignments: u64,
    /// Checkpoints that the store has acknowledged to this process: it must never show older ones.
    /// One that was only read may stand on a single replica, and be gone from the next quorum.
    floors: BTreeMap<Partition, AsOf>,
    /// When to ask the log for its ends, and, once flushes had their time, to write progress.
    next_ends: Duration,
    next_progress: Duration,
}

impl Runner {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut tick = clock::interval(TICK);
        let stopper = self.work.stopper.clone();
        loop {
            // What is due and what came back goes before new records: those never end.
            tokio::select! {
                biased;
                () = stopper.stopped() => break,
                _ = tick.tick() => self.on_tick(),
                Some(done) = self.tasks.join_next() => self.on_done(done?),
                Some(ends) = self.ends.join_next() => self.on_ends(ends?),
                Some(written) = self.progress.join_next() => written?,
                polled = self.poller.next() => {
                    let polled = polled.context("the polling thread has died")?;
                    polled.into_iter().for_each(|polled| self.on_polled(polled));
                }
            }
        }
        self.last_flush().await;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.work.clock.monotonic()
    }

    /// Sends out a task of an owned partition.
    fn send(
        &mut self,
        partition: Partition,
        assignment: u64,
        task: impl Future<Output = Done> + Send + 'static,
    ) {
        self.tasks.spawn(async move { (partition, assignment, task.await) });
    }

    fn on_polled(&mut self, polled: Polled) {
        let now = self.now();
        match polled {
            Polled::Records(batch) => {
                let partition = batch.partition;
                self.metrics.records.inc_by(batch.records.len() as u64);
                if let Some(owned) = self.owned.get_mut(&partition) {
                    owned.receive(batch, now);
                    self.pump(partition);
                }
            }
            Polled::Assigned(partitions) => {
                tracing::info!(partitions = %list(&partitions), "partitions assigned");
                partitions.into_iter().for_each(|partition| self.assign(partition));
            }
            Polled::Revoked(partitions) => {
                tracing::info!(partitions = %list(&partitions), "partitions revoked");
                partitions.into_iter().for_each(|partition| self.revoke(partition));
            }
            Polled::OutOfRange(partition) => {
                self.owned.get_mut(&partition).into_iter().for_each(Owned::lose_place);
            }
            Polled::Trouble { partition, message } => {
                self.work.health.report("log", Some(&message));
                self.doubt(partition);
            }
        }
    }

    fn doubt(&mut self, partition: Option<Partition>) {
        let it = |p: &Partition| partition.is_none_or(|only| only == *p);
        self.owned.iter_mut().filter(|(p, _)| it(p)).for_each(|(_, owned)| owned.doubt());
    }

    fn assign(&mut self, partition: Partition) {
        self.assignments += 1;
        let now = self.now();
        self.owned.insert(partition, Owned::new(self.assignments, now));
        self.work.health.not_ready(&part(partition), "opening");
        let floor = self.floors.get(&partition).copied().unwrap_or_default();
        let task = self.work.clone().open(partition, floor);
        self.send(partition, self.assignments, task);
    }

    /// The partition is another's now. What we know is true all the same, so it is flushed once
    /// more, to spare the next owner a replay; nobody waits for it.
    fn revoke(&mut self, partition: Partition) {
        let flush =
            self.owned.remove(&partition).and_then(|mut owned| owned.engine()?.begin_flush());
        if let Some(flush) = flush {
            let task = self.work.clone().flush(partition, flush);
            self.send(partition, 0, task);
        }
        self.work.health.forget(&part(partition));
        self.metrics.forget(partition);
    }

    /// Folds what may be folded, asks for bases, and holds the consumer back or lets it go.
    fn pump(&mut self, partition: Partition) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        while let Some(next) = owned.pump() {
            match next {
                Next::Fine => {}
                Next::Ask(expected) => {
                    tracing::info!(partition = partition.0, %expected, "records are missing");
                    let (assignment, work) = (owned.assignment, self.work.clone());
                    return self.send(partition, assignment, work.find_next(partition, expected));
                }
                Next::Stop(why) => return self.stop_partition(partition, &why),
            }
        }
        if owned.paused == owned.is_drained() {
            owned.paused = !owned.paused;
            if owned.paused {
                self.poller.pause(partition);
            } else {
                self.poller.resume(partition);
            }
        }
        let assignment = owned.assignment;
        let mut loads = Vec::new();
        while owned.loads < LOADS_IN_FLIGHT {
            let counters =
                owned.engine().map(|engine| engine.take_loads(LOAD_COUNTERS)).unwrap_or_default();
            if counters.is_empty() {
                break;
            }
            owned.loads += 1;
            loads.push(counters);
        }
        let mut entry_loads = Vec::new();
        while owned.entry_loads + entry_loads.len() < ENTRY_LOADS_IN_FLIGHT {
            let wanted = owned.engine().map(|engine| engine.take_entry_loads(LOAD_COUNTERS));
            let wanted = wanted.unwrap_or_default();
            if wanted.is_empty() {
                break;
            }
            entry_loads.extend(wanted);
        }
        owned.entry_loads += entry_loads.len();
        for counters in loads {
            let task = self.work.clone().load(partition, counters);
            self.send(partition, assignment, task);
        }
        for (counter, actors) in entry_loads {
            let task = self.work.clone().load_entries(counter, actors);
            self.send(partition, assignment, task);
        }
    }

    fn on_done(&mut self, (partition, assignment, done): TaskResult) {
        let now = self.now();
        let Some(owned) = self.owned.get_mut(&partition).filter(|o| o.assignment == assignment)
        else {
            return; // of an earlier assignment: true, but nobody waits for it
        };
        match done {
            Done::Opened(Ok(checkpoint)) => self.opened(partition, checkpoint),
            Done::Loaded(counters, Ok(bases)) => {
                owned.loads -= 1;
                let Some(engine) = owned.engine() else { return };
                let loaded = counters.iter().zip(bases);
                let loaded: Result<(), _> =
                    loaded.into_iter().try_for_each(|(c, base)| engine.loaded(c, base));
                if let Err(stop) = loaded {
                    return self.stop_partition(partition, &stop.to_string());
                }
            }
            Done::LoadedEntries(counter, actors, Ok(entries)) => {
                owned.entry_loads -= 1;
                let Some(engine) = owned.engine() else { return };
                if let Err(stop) = engine.entries_loaded(&counter, actors.into_iter().zip(entries))
                {
                    return self.stop_partition(partition, &stop.to_string());
                }
            }
            Done::Flushed(written) => self.on_flushed(partition, written),
            Done::Recognised(Ok(())) => {
                if owned.recognised(now)
                    && let Some(engine) = owned.engine()
                {
                    if engine.is_refilling() {
                        return self.assign(partition); // retention took what it was to read again
                    }
                    let next = engine.next().next();
                    self.poller.open(partition, next);
                }
            }
            Done::Next(expected, next) => {
                owned.answered(expected, next);
                self.poller.open(partition, expected);
            }
            Done::NotDelivered(from) => {
                let next = owned.engine().map(|engine| engine.next());
                if next == Some(from) && owned.is_silent(now) {
                    tracing::warn!(partition = partition.0, %from, "the log does not deliver");
                    self.poller.open(partition, from.next());
                }
            }
            Done::TailIsEmpty(from, end) => owned.caught_up.tail_is_empty(end, from),
            Done::Nothing => {}
            Done::Opened(Err(why))
            | Done::Loaded(_, Err(why))
            | Done::LoadedEntries(_, _, Err(why))
            | Done::Recognised(Err(why))
            | Done::Failed(why) => {
                if !self.work.stopper.is_stopped() {
                    self.stop_partition(partition, &why);
                }
            }
        }
        self.pump(partition);
    }

    /// The log is the one that the checkpoint speaks of: the partition goes on from there.
    fn opened(&mut self, partition: Partition, checkpoint: Option<Checkpoint>) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        let place = (partition, self.work.log.partitions());
        let (epoch, kinds) = (self.work.epoch, self.kinds.clone());
        let engine = Engine::resume(place, epoch, kinds, self.limits, checkpoint);
        let (from, durable) = (engine.next(), engine.durable());
        owned.caught_up.advance(durable, engine.durable_append_time_ms());
        owned.run(engine);
        tracing::debug!(partition = partition.0, %from, %durable, "partition opened");
        self.work.health.ready(&part(partition));
        self.poller.open(partition, from.next());
        self.poller.report(partition, durable.next(), from.next());
    }

    /// Starts what is due: flushes, recognition, progress.
    fn on_tick(&mut self) {
        let now = self.now();
        let to_reopen = |(partition, owned): (&Partition, &Owned)| {
            owned.is_to_reopen(now).then_some(*partition)
        };
        let reopened: Vec<Partition> = self.owned.iter().filter_map(to_reopen).collect();
        reopened.into_iter().for_each(|partition| self.assign(partition));
        let partitions: Vec<Partition> = self.owned.keys().copied().collect();
        for partition in partitions {
            self.flush_if_due(partition, now);
            self.recognise_if_due(partition, now);
        }
        if now >= self.next_ends {
            self.next_ends = now + self.flush_interval;
            self.next_progress = now + self.flush_interval / 2;
            self.ask_ends();
        }
        if now >= self.next_progress {
            self.next_progress = Duration::MAX; // until the ends were asked again
            self.write_progress();
        }
    }

    fn stop_partition(&mut self, partition: Partition, why: &str) {
        let now = self.now();
        tracing::error!(partition = partition.0, why, "partition stopped, an operator must look");
        self.work.health.not_ready(&part(partition), why);
        self.metrics.stopped.get_or_create(&metrics::of(partition)).set(1);
        self.poller.pause(partition);
        if let Some(owned) = self.owned.get_mut(&partition) {
            owned.stop(now);
        }
    }
}

/// Partitions for people: `0, 1, 5`.
fn list(partitions: &[Partition]) -> String {
    partitions.iter().map(Partition::to_string).collect::<Vec<_>>().join(", ")
}

fn part(partition: Partition) -> String {
    format!("partition {partition}")
}
