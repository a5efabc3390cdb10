//! The way of an event into the log: reserve room, queue by partition, wait until the log has it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tally_log::{AppendError, EventLog, NewRecord};
use tally_proto::{
    CounterId, Epoch, Event, Kinds, Offset, Partition, Reset, SubjectId, Token, route,
};
use tally_service::clock::SharedClock;
use tally_service::health::Health;
use tally_service::metrics::{ByPartition, Metrics};
use tally_service::mutant;
use tally_store::{Created, FactStore, StoreError};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::budget::Budget;
use crate::metrics::IngestMetrics;
use crate::queue::{Outcome, Queue, Sink};
use crate::settings::IngestSettings;
use crate::spread::{Now, Spreads};

/// What ingest needs.
pub struct Context {
    /// Where events go.
    pub log: Arc<dyn EventLog>,
    /// What createCounter said is kept there; no event waits for it.
    pub store: Arc<dyn FactStore>,
    /// The epoch of the layout, for tokens.
    pub epoch: Epoch,
    /// The kinds that are declared.
    pub kinds: Arc<Kinds>,
    /// `[ingest]`.
    pub settings: IngestSettings,
    /// Time.
    pub clock: SharedClock,
    /// For `/readyz`.
    pub health: Health,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// Of the chance by which slots are picked.
    pub seed: u64,
}

/// Takes checked events into the log. Must be made within a tokio runtime.
pub struct Ingest {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) settings: IngestSettings,
    pub(crate) metrics: IngestMetrics,
    epoch: Epoch,
    log: Arc<dyn EventLog>,
    pub(crate) store: Arc<dyn FactStore>,
    clock: SharedClock,
    budget: Budget,
    spreads: Arc<Mutex<Spreads>>,
    /// By partition.
    queues: Vec<Queue>,
}

/// Why events were not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IngestError {
    /// Too much waits for the log: nothing was taken, try again later.
    #[error("too many events wait for the log: nothing was taken, send it again later")]
    Busy,
    /// Some of it may be in the log: send it again with the same ids.
    #[error("{0}: some events may be in the log; send them again with the same ids")]
    InDoubt(AppendError),
}

/// Events that were queued, and that the log may not have yet.
#[derive(Debug)]
pub struct Receipt {
    epoch: Epoch,
    answers: Vec<(Partition, oneshot::Receiver<Outcome>)>,
}

impl Receipt {
    /// Waits until the log has all of it; the token names where.
    pub async fn durable(self) -> Result<Token, IngestError> {
        let mut token = Token::new(self.epoch);
        let mut failed = None;
        for (partition, answer) in self.answers {
            if mutant!("answer-before-the-log") {
                continue;
            }
            let closed = |_| Err(AppendError::InDoubt("ingest is stopping".into()));
            match answer.await.unwrap_or_else(closed) {
                Ok(offset) => token.include(partition, offset.as_of()),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(token), |error| Err(IngestError::InDoubt(error)))
    }
}

impl Ingest {
    /// Starts a queue for each partition.
    pub fn start(context: Context) -> Self {
        let partitions = context.log.partitions();
        let metrics = IngestMetrics::new(&context.metrics);
        let slot_rate = context.settings.slot_rate;
        let sink = Sink {
            log: context.log.clone(),
            clock: context.clock.clone(),
            health: context.health,
            metrics: metrics.clone(),
        };
        Ingest {
            kinds: context.kinds,
            log: context.log,
            store: context.store,
            clock: context.clock,
            spreads: Arc::new(Mutex::new(Spreads::new(partitions, slot_rate, context.seed))),
            budget: Budget::new(context.settings.max_pending_events),
            settings: context.settings,
            metrics,
            epoch: context.epoch,
            queues: (0..partitions).map(|p| Queue::start(Partition(p), sink.clone())).collect(),
        }
    }

    /// Queues events, all or none.
    pub fn push(&self, events: &[Event<'_>]) -> Result<Receipt, IngestError> {
        let Some(mut room) = self.budget.reserve(events.len()) else {
            self.metrics.shed.inc_by(events.len() as u64);
            return Err(IngestError::Busy);
        };
        let mut routed = self.deal(events);
        routed.sort_by_key(|(partition, _)| *partition); // stable: order within a counter stays
        let mut answers = Vec::new();
        for chunk in routed.chunk_by(|a, b| a.0 == b.0) {
            let partition = chunk[0].0;
            let Some(queue) = self.queues.get(partition.0 as usize) else { continue };
            let label = ByPartition { partition: partition.0 };
            self.metrics.routed.get_or_create(&label).inc_by(chunk.len() as u64);
            let queued = queue.push(chunk.iter().map(|(_, event)| **event), &mut room);
            answers.extend(queued.into_iter().map(|answer| (partition, answer)));
        }
        let pending = self.settings.max_pending_events.saturating_sub(self.budget.free());
        self.metrics.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
        Ok(Receipt { epoch: self.epoch, answers })
    }

    /// Begins a counter anew in every partition; what was sent before counts no more. The partition
    /// of its slot 0 comes first, and names the generation.
    pub async fn reset(&self, counter: &CounterId) -> Result<Token, IngestError> {
        let partitions = self.partitions();
        let SubjectId { namespace, subject } = &counter.subject;
        let home = route(namespace, subject, 0, partitions);
        let first = Reset { counter: counter.clone(), generation: None };
        let as_of = self.append(home, first.encode()).await?.as_of();
        let generation = Reset::generation_at(self.epoch, as_of);
        let generation = generation.map_err(|error| AppendError::Refused(error.to_string()));
        let generation = generation.map_err(IngestError::InDoubt)?;
        let next = Reset { generation: Some(generation), ..first }.encode();
        let others = (0..partitions).map(Partition).filter(|partition| *partition != home);
        let appends = others.map(|partition| {
            let next = next.clone();
            async move { Ok::<_, IngestError>((partition, self.append(partition, next).await?)) }
        });
        let appended = futures::future::try_join_all(appends).await?;
        let mut token = Token::new(self.epoch);
        token.include(home, as_of);
        appended.into_iter().for_each(|(partition, at)| token.include(partition, at.as_of()));
        Ok(token)
    }

    /// Appends a control record.
    async fn append(&self, partition: Partition, value: Bytes) -> Result<Offset, IngestError> {
        let record = NewRecord::control(value);
        self.log.append(partition, record).await.map_err(IngestError::InDoubt)
    }

    /// The partition of each event.
    fn deal<'e>(&self, events: &'e [Event<'e>]) -> Vec<(Partition, &'e Event<'e>)> {
        let waiting = |partition: Partition| {
            self.queues.get(partition.0 as usize).map_or(0, |queue| queue.waiting())
        };
        let (at, unix_ms) = (self.clock.monotonic(), self.clock.unix_ms());
        let mut spreads = self.spreads.lock();
        let dealt = spreads.deal(events, &Now { at, unix_ms, waiting: &waiting });
        let (counters, widest) = spreads.widest();
        let warm = spreads.take_warm();
        drop(spreads);
        warm.into_iter().for_each(|counter| self.ask_for_least(counter));
        self.metrics.spread_counters.set(i64::try_from(counters).unwrap_or(i64::MAX));
        self.metrics.widest_spread.set(i64::from(widest));
        dealt
    }

    /// Asks what createCounter said of a counter that has become warm; nobody waits for it, and if
    /// the store is away the counter is asked for again.
    fn ask_for_least(&self, counter: CounterId) {
        let (store, spreads) = (self.store.clone(), self.spreads.clone());
        tokio::spawn(async move {
            if let Ok(created) = store.load_created(&counter).await {
                let shards = created.map_or(1, |created| created.shards);
                spreads.lock().set_least(&counter, shards);
            }
        });
    }

    /// Says how many slots a counter is dealt over at least; returns whether it was not known.
    pub async fn create(&self, counter: &CounterId, shards: u32) -> Result<bool, StoreError> {
        let is_new = self.store.load_created(counter).await?.is_none();
        self.store.write_created(counter, Some(Created { shards })).await?;
        self.spreads.lock().set_least(counter, shards);
        Ok(is_new)
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.queues.len()).unwrap_or(u32::MAX)
    }

    /// Whether nothing waits for the log.
    pub fn is_drained(&self) -> bool {
        self.budget.free() >= self.settings.max_pending_events
    }
}
