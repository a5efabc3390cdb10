//! One run: the world that a seed describes, what goes wrong in it, and the verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_aggregator::AggregatorSettings;
use tally_aggregator::epoch::{self, Begin, Move};
use tally_ingest::{Ingest, IngestSettings};
use tally_proto::{
    AsOf, Checkpoint, Epoch, Kind, Kinds, Layout, Mode, Offset, Partition, RetryWindow, ShardChoice,
};
use tally_service::clock::SharedClock;
use tally_service::health::Health;
use tally_service::metrics::Metrics;
use tally_service::mutant;
use tally_service::stopper::Stopper;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock::SimClock;
use crate::dice::Dice;
use crate::log::{Glitches, SimLog};
use crate::oracle::Oracle;
use crate::plan::{Fault, Plan};
use crate::process::{Process, Weather};
use crate::producers::{Accounts, Clients, NEW_SUBJECTS, SUBJECTS, foreign};
use crate::readers::Readers;
use crate::store::{OPERATOR, SimStore};

/// How long everything may take to settle once nothing goes wrong any more.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was wrong, if anything.
    pub wrong: Option<String>,
    /// Writes that were judged.
    pub writes: u64,
    /// All of them as one number.
    pub digest: u64,
}

/// Runs a seed, with a mutant or without.
pub fn run(seed: u64, mutant: Option<&'static str>) -> Outcome {
    mutant::set(mutant);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        let mut world = World::new(seed);
        world.live().await;
        world.outcome()
    });
    drop(runtime);
    mutant::set(None);
    outcome
}

/// Few actors are many here, and they are dealt over few slots.
pub(crate) const LIKE_SPREAD: u32 = 2;
const MOST_INLINE: usize = 2;

fn kind(name: &str, mode: Mode) -> Kind {
    let shard_choice = ShardChoice::LeastLoaded;
    let (spread, most_inline) = (LIKE_SPREAD, MOST_INLINE);
    Kind { name: name.into(), mode, spread, shard_choice, most_inline }
}

fn kinds(last: Kind, retry_window: RetryWindow) -> Arc<Kinds> {
    let kinds =
        vec![kind("view", Mode::Tally), kind("reply", Mode::Tally), kind("like", Mode::Set), last];
    Arc::new(Kinds::new(kinds, retry_window))
}

struct Aggregator {
    process: Process,
    stopper: Stopper,
    health: Health,
    in_group: bool,
    task: JoinHandle<anyhow::Result<()>>,
}

struct World {
    dice: Dice,
    plan: Plan,
    clock: SharedClock,
    weather: Arc<Mutex<Weather>>,
    kinds: Arc<Kinds>,
    log: SimLog,
    store: SimStore,
    oracle: Oracle,
    aggregators: Vec<Aggregator>,
    /// One that slept while the log was replaced.
    sleeper: Option<Aggregator>,
    ingest: Arc<Mutex<Option<Arc<Ingest>>>>,
    accounts: Accounts,
    /// The partitions whose log was replaced: they must stop.
    replaced: Vec<Partition>,
    /// Where the log was cut.
    cut: Offset,
    started: u64,
    epoch: Epoch,
}

impl World {
    fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let plan = Plan::new(&dice);
        let clock = SimClock::shared();
        let kinds = kinds(kind("repost", Mode::Set), plan.retry_window);
        let log = SimLog::new(plan.partitions, dice.clone(), clock.clone(), kinds.clone());
        log.trouble(plan.glitches, plan.holes);
        let oracle = Oracle::new(log.clone());
        World {
            store: SimStore::new(dice.clone(), clock.clone(), oracle.clone()),
            weather: Arc::new(Mutex::new(plan.weather)),
            dice,
            plan,
            clock,
            kinds,
            log,
            oracle,
            aggregators: Vec::new(),
            sleeper: None,
            ingest: Arc::default(),
            accounts: Accounts::default(),
            replaced: Vec::new(),
            cut: Offset(0),
            started: 0,
            epoch: Epoch::FIRST,
        }
    }

    fn process(&self, name: &str) -> Process {
        Process::new(name, self.dice.clone(), self.weather.clone())
    }

    fn start_aggregator(&mut self, in_group: bool) {
        self.started += 1;
        let id = format!("aggregator {}", self.started);
        let (process, stopper, health) = (self.process(&id), Stopper::new(), Health::default());
        let all = format!("0-{}", self.plan.partitions - 1);
        let context = tally_aggregator::Context {
            log: self.log.of(&process),
            store: self.store.of(&process),
            epoch: self.epoch,
            kinds: self.kinds_of_a_process(),
            settings: AggregatorSettings {
                assign: (!in_group).then_some(all),
                ..AggregatorSettings::default()
            },
            limits: self.plan.limits(&self.dice),
            flush: tally_aggregator::FlushSettings { interval_ms: self.plan.flush_ms },
            id,
            clock: self.clock.clone(),
            health: health.clone(),
            metrics: Metrics::default(),
            stopper: stopper.clone(),
        };
        let oracle = self.oracle.clone();
        let task = tokio::spawn(async move {
            let ended = tally_aggregator::run(context).await;
            if let Err(error) = &ended {
                oracle.accuse(format!("an aggregator ended: {error:#}"));
            }
            ended
        });
        self.aggregators.push(Aggregator { process, stopper, health, in_group, task });
    }

    /// The kinds belong to the log, not to a process: a mutant lets a process have its own.
    fn kinds_of_a_process(&self) -> Arc<Kinds> {
        if mutant!("kinds-by-process") && self.started.is_multiple_of(2) {
            return kinds(kind("unheard", Mode::Tally), self.plan.retry_window);
        }
        if mutant!("window-by-process") && self.started.is_multiple_of(2) {
            let window = RetryWindow { ids: 1, ..self.plan.retry_window };
            return kinds(kind("repost", Mode::Set), window);
        }
        self.kinds.clone()
    }

    fn start_ingest(&self) {
        let ingest = Ingest::start(tally_ingest::Context {
            log: self.log.of(&self.process("ingest")),
            store: self.store.of(&self.process("ingest")),
            epoch: self.epoch,
            kinds: self.kinds.clone(),
            settings: IngestSettings {
                slot_rate: self.plan.slot_rate,
                ..IngestSettings::default()
            },
            clock: self.clock.clone(),
            health: Health::default(),
            metrics: Metrics::default(),
            seed: self.dice.below(u64::MAX),
        });
        *self.ingest.lock() = Some(Arc::new(ingest));
    }

    fn readers(&self) -> Readers {
        let store = self.store.of(&self.process("reader"));
        Readers::start(
            store,
            (self.plan.partitions, self.epoch),
            self.kinds.clone(),
            self.clock.clone(),
            self.oracle.clone(),
        )
    }

    /// Things go wrong for a time; then everything must come right.
    async fn live(&mut self) {
        for in_group in self.plan.in_group.clone() {
            self.start_aggregator(in_group);
        }
        self.start_ingest();
        let writing = self.start_producers();
        let readers = self.readers();
        let reading = tokio::spawn(readers.clone().read_often(self.dice.clone(), self.log.clone()));
        let (begin, faults) = (Instant::now(), std::mem::take(&mut self.plan.faults));
        for (at, fault) in faults {
            sleep_until(begin + at).await;
            self.strike(fault).await;
        }
        sleep_until(begin + self.plan.active).await;
        if self.oracle.verdict().is_some() {
            return;
        }
        self.calm_down();
        for client in writing {
            client.await.expect("a client");
        }
        reading.abort();
        self.settle().await;
        if !self.replaced.is_empty() && self.oracle.verdict().is_none() {
            self.judge_stopped();
            self.move_on().await;
            self.settle().await;
        }
        if self.oracle.verdict().is_none() {
            self.judge(&self.readers()).await;
        }
    }

    fn clients(&self, subjects: &'static [&'static str]) -> Clients {
        Clients {
            dice: self.dice.clone(),
            ingest: self.ingest.clone(),
            accounts: self.accounts.clone(),
            kinds: self.kinds.clone(),
            subjects,
            likes: self.plan.likes,
            ids: self.plan.ids,
            resets: self.plan.resets,
        }
    }

    fn start_producers(&self) -> Vec<JoinHandle<()>> {
        let clients = self.clients(SUBJECTS);
        let active = self.plan.active;
        let mut writing: Vec<JoinHandle<()>> = Vec::new();
        for (at, requests) in self.plan.requests.iter().enumerate() {
            let overflows = at == 0 && self.plan.overflows;
            writing.push(tokio::spawn(clients.clone().run(*requests, active, overflows)));
        }
        let records = self.dice.below(8);
        writing.push(tokio::spawn(foreign(
            self.log.clone(),
            self.dice.clone(),
            records,
            active,
            self.plan.likes,
            self.plan.ids,
        )));
        writing
    }

    async fn strike(&mut self, fault: Fault) {
        let victim = usize::try_from(self.dice.below(self.aggregators.len() as u64)).unwrap_or(0);
        tracing::debug!(?fault, victim = self.aggregators[victim].process.name(), "fault");
        match fault {
            Fault::Crash | Fault::Stop => {
                let victim = self.aggregators.swap_remove(victim);
                if fault == Fault::Crash {
                    victim.task.abort();
                } else {
                    victim.stopper.stop();
                }
                self.start_aggregator(victim.in_group);
            }
            Fault::Freeze(time) => self.aggregators[victim].process.freeze(time),
            Fault::Cut(time) => self.aggregators[victim].process.cut(time),
            Fault::CrashIngest => {
                *self.ingest.lock() = None;
                self.start_ingest();
            }
            Fault::Rebalance => self.log.rebalance(),
            Fault::Down(replica, time) => {
                self.store.set_down(replica, true);
                let store = self.store.clone();
                tokio::spawn(async move {
                    sleep(time).await;
                    store.set_down(replica, false);
                });
            }
            Fault::PowerCut(replica) => self.store.cut_power(replica),
            Fault::Blackout => (0..3).for_each(|replica| self.store.cut_power(replica)),
            Fault::Outage(time) => self.log.outage(time),
            // A log that was just made anew is not old enough to lose records by age.
            Fault::Retain if !self.replaced.is_empty() => {}
            Fault::Retain => {
                for partition in self.log.partitions() {
                    let Some(checkpoint) = self.store.checkpoint(partition) else { continue };
                    let left = self.dice.below(3);
                    let counted = AsOf(checkpoint.as_of.0.saturating_sub(left));
                    self.log.retain(partition, self.unneeded(partition, checkpoint).min(counted));
                }
            }
            Fault::Replace => self.replace().await,
        }
    }

    /// Below it retention may take everything: records much older than any that is still to be
    /// counted, and those whose ids nobody remembers.
    fn unneeded(&self, partition: Partition, checkpoint: Checkpoint) -> AsOf {
        let kept_ms = self.plan.retry_window.least_retention_ms();
        let next = self.log.record_from(partition, checkpoint.as_of.next());
        let next_ms = next.map_or(self.clock.unix_ms(), |record| record.append_time_ms);
        let aged = self.log.end_before(partition, next_ms - kept_ms);
        // An owner cannot tell how old the newest was that is gone, only what it stood before.
        let span_ms = self.plan.retry_window.span_ms;
        let is_plain = self.log.record_from(partition, aged.next()).is_none_or(|left| {
            left.append_time_ms + span_ms < next_ms || left.offset >= checkpoint.as_of.next()
        });
        checkpoint.window_from.max(if is_plain { aged } else { AsOf::ZERO })
    }

    /// The log loses records that were counted. Nobody reaches it while that happens.
    async fn replace(&mut self) {
        self.start_aggregator(false);
        sleep(Duration::from_millis(500)).await;
        // Sometimes it alone sees what comes last.
        let is_alone = self.dice.chance(500);
        if is_alone {
            let others = self.aggregators.len() - 1;
            self.aggregators.drain(..others).for_each(|aggregator| aggregator.task.abort());
        }
        let burst = Duration::from_millis(100);
        tokio::spawn(self.clients(NEW_SUBJECTS).run(20, burst, false));
        sleep(self.dice.millis(20, 200)).await;
        self.sleeper = self.aggregators.pop();
        self.sleeper.iter().for_each(|sleeper| sleeper.process.freeze(Duration::from_hours(1)));
        self.log.outage(Duration::from_millis(7_000));
        sleep(Duration::from_millis(6_500)).await;
        if is_alone {
            self.start_aggregator(true);
        }
        let partitions: Vec<Partition> = self.log.partitions().collect();
        let partition = *self.dice.pick(&partitions);
        let Some(checkpoint) = self.store.checkpoint(partition) else { return };
        let is_anew = self.dice.chance(500);
        let from = if is_anew { 0 } else { self.dice.below(checkpoint.as_of.0) };
        self.log.lose(partition, Offset(from));
        self.cut = Offset(from);
        self.replaced.push(partition);
    }

    /// An operator goes on under the next epoch, with breaks; who slept wakes up when it is over.
    async fn move_on(&mut self) {
        let operator = self.process(OPERATOR);
        let layout = Layout {
            cluster: "simulated".into(),
            topic: "events".into(),
            partitions: self.plan.partitions,
            epoch: self.epoch.number(),
            fold_version: Layout::FOLD_VERSION,
        };
        for attempt in 1.. {
            let moving = epoch::next(
                Move {
                    log: self.log.of(&operator),
                    store: self.store.of(&operator),
                    layout: layout.clone(),
                    begin: Begin::At(self.cut),
                    wait: epoch::UNTIL_ALL_STOPPED,
                },
                |_| {},
            );
            let patience = self.dice.millis(44_000, 46_000) * attempt;
            match timeout(patience, moving).await {
                Ok(Ok(moved)) => {
                    self.epoch = moved.epoch;
                    break;
                }
                Ok(Err(error)) if attempt > 5 => {
                    return self.oracle.accuse(format!("no move: {error:#}"));
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.aggregators.drain(..).for_each(|aggregator| aggregator.task.abort());
        self.start_ingest();
        // What it still says is of the former epoch, and of a log that is gone.
        self.sleeper.iter().for_each(|sleeper| sleeper.process.heal());
        sleep(self.dice.millis(0, 500)).await;
        self.start_aggregator(true);
        self.clients(NEW_SUBJECTS).run(20, Duration::from_secs(1), false).await;
        for client in self.start_producers() {
            client.await.expect("a client");
        }
        self.sleeper.take().into_iter().for_each(|sleeper| sleeper.task.abort());
        self.replaced.clear();
    }

    /// Nothing goes wrong from here on; one owner is left, at least, that covers everything.
    fn calm_down(&mut self) {
        tracing::debug!("nothing goes wrong from here on");
        *self.weather.lock() = Weather::FAIR;
        self.log.trouble(Glitches::default(), 0);
        self.log.outage(Duration::ZERO);
        (0..3).for_each(|replica| self.store.set_down(replica, false));
        self.aggregators.iter().for_each(|aggregator| aggregator.process.heal());
        let survivors = usize::try_from(self.dice.between(1, 2)).unwrap_or(1);
        while self.aggregators.len() > survivors {
            let at = usize::try_from(self.dice.below(self.aggregators.len() as u64)).unwrap_or(0);
            self.aggregators.swap_remove(at).task.abort();
        }
        if !self.aggregators.iter().any(|aggregator| aggregator.in_group) {
            self.start_aggregator(true);
        }
        self.log.rebalance();
    }

    /// Waits until everything is durable, or for long enough.
    async fn settle(&self) {
        sleep(Duration::from_secs(6)).await; // what was sent before arrives
        let begin = Instant::now();
        while begin.elapsed() < SETTLED_WITHIN {
            if self.oracle.verdict().is_some() {
                return;
            }
            if self.log.partitions().all(|partition| self.is_settled(partition)) {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        for partition in self.log.partitions().filter(|p| !self.is_settled(*p)) {
            let end = self.log.bounds(partition).end;
            let at = self.store.checkpoint(partition).map(|checkpoint| checkpoint.as_of);
            self.oracle.accuse(format!(
                "stuck: partition {partition} is at {at:?} of {end}; {:?}",
                self.problems()
            ));
        }
    }

    fn is_settled(&self, partition: Partition) -> bool {
        if self.replaced.contains(&partition) {
            return self.problems().contains_key(&format!("partition {partition}"));
        }
        let end = self.log.last(partition).map(|record| record.offset.as_of());
        self.store.newest_checkpoint(partition).map(|checkpoint| checkpoint.as_of) == end
    }

    fn problems(&self) -> BTreeMap<String, String> {
        self.aggregators.iter().flat_map(|aggregator| aggregator.health.problems()).collect()
    }

    /// At the end every total, every dead letter and every promise must be right.
    async fn judge(&self, readers: &Readers) {
        readers.judge_totals(&self.log).await;
        if self.epoch == Epoch::FIRST {
            for partition in self.log.partitions() {
                readers.judge_dead_letters(&self.log, partition).await;
                readers.judge_actors(&self.log, partition).await;
            }
            self.judge_accounts();
            self.oracle.judge_resets();
        }
    }

    /// Who counts a log that was replaced must have stopped, and say why.
    fn judge_stopped(&self) {
        let problems = self.problems();
        for partition in &self.replaced {
            let why = problems.get(&format!("partition {partition}")).cloned().unwrap_or_default();
            if !["replaced", "retention", "shorter"].iter().any(|word| why.contains(word)) {
                self.oracle.accuse(format!("partition {partition} goes on: '{why}'"));
            }
        }
    }

    /// What was acked is in the log once; what is in the log was sent.
    fn judge_accounts(&self) {
        for (subject, account) in self.accounts.lock().iter() {
            let counter = tally_proto::CounterId::new("default", "reply", subject).expect("a name");
            let total: i64 = self
                .log
                .partitions()
                .map(|p| self.log.truth(p, |t| t.total(&counter, tally_proto::AsOf(u64::MAX))))
                .sum();
            if !(account.acked..=account.sent).contains(&total) {
                self.oracle.accuse(format!(
                    "the log holds {total} of {counter}, but clients sent {} and {} were acked",
                    account.sent, account.acked
                ));
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let (writes, digest) = self.oracle.digest();
        Outcome { wrong: self.oracle.verdict(), writes, digest }
    }
}
