//! The reader: answers from the cache, reads the store when an answer is older than it may be.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use tally_proto::{Epoch, Kinds, Partition, SubjectId};
use tally_service::clock::{self, SharedClock};
use tally_service::health::Health;
use tally_service::metrics::Metrics;
use tally_service::mutant;
use tally_service::stopper::Stopper;
use tally_store::{DeadLetter, FactStore, StoreError, day_of};
use thiserror::Error;

use crate::cache::{Cache, Entry, Snapshot};
use crate::metrics::ReaderMetrics;
use crate::reduce::reduce;
use crate::settings::ReaderSettings;
use crate::watermark::Watermark;

/// After a failed read, the old answer is served for so long before the store is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// What a reader needs.
pub struct Context {
    /// Where facts are.
    pub store: Arc<dyn FactStore>,
    /// How many partitions a counter may lie in.
    pub partitions: u32,
    /// The epoch of the layout.
    pub epoch: Epoch,
    /// The kinds that are declared.
    pub kinds: Arc<Kinds>,
    /// `[reader]`.
    pub settings: ReaderSettings,
    /// Time.
    pub clock: SharedClock,
    /// For `/readyz`.
    pub health: Health,
    /// For `/metrics`.
    pub metrics: Metrics,
}

/// Serves totals.
pub struct Reader {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) settings: ReaderSettings,
    pub(crate) clock: SharedClock,
    /// How long others may keep an answer: as long as this cache does.
    pub(crate) cache_control: HeaderValue,
    pub(crate) store: Arc<dyn FactStore>,
    pub(crate) partitions: u32,
    pub(crate) epoch: Epoch,
    health: Health,
    metrics: ReaderMetrics,
    watermark: Watermark,
    cache: Cache,
}

/// What is known of a subject, and whether the store was away when it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) stale: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The store does not answer, and nothing is cached: try again.
    #[error("{0}")]
    Unavailable(StoreError),
    /// What the store holds cannot be read: an operator must look.
    #[error("{0}")]
    Damaged(StoreError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        match error {
            error @ StoreError::Unavailable(_) => ReadError::Unavailable(error),
            error => ReadError::Damaged(error),
        }
    }
}

impl Reader {
    /// A reader that knows nothing yet; [`Reader::watch`] must run beside it.
    pub fn new(context: Context) -> Self {
        let max_age = context.settings.reduce_interval_ms.div_ceil(1_000);
        Reader {
            cache_control: HeaderValue::try_from(format!("max-age={max_age}"))
                .expect("a number is a header's value"),
            cache: Cache::new(context.settings.cache_subjects),
            metrics: ReaderMetrics::new(&context.metrics),
            watermark: Watermark::default(),
            kinds: context.kinds,
            settings: context.settings,
            clock: context.clock,
            store: context.store,
            partitions: context.partitions,
            epoch: context.epoch,
            health: context.health,
        }
    }

    /// Keeps the watermark fresh until it is stopped.
    pub async fn watch(&self, stopper: &Stopper) {
        let mut interval = clock::interval(self.settings.reduce_interval() / 2);
        let stopped = stopper.token();
        while stopped.run_until_cancelled(interval.tick()).await.is_some() {
            let progress = self.store.read_progress(self.partitions).await;
            if let Ok(rows) = &progress {
                self.watermark.update(rows);
            }
            self.health.report("store", progress.as_ref().err());
            let age = self
                .watermark
                .get(self.partitions)
                .map_or(-1, |at_ms| self.clock.unix_ms() - at_ms);
            self.metrics.staleness_ms.set(age);
        }
    }

    /// What is known of a subject: from the cache while it is fresh, else from the store, else,
    /// while the store is away, from the cache all the same.
    pub(crate) async fn read(&self, subject: &SubjectId) -> Result<Seen, ReadError> {
        self.metrics.reads.inc();
        let entry = self.cache.entry(subject).await;
        if let Some(snapshot) = self.fresh(&entry) {
            return Ok(Seen { snapshot, stale: false });
        }
        let mut retry_at = entry.reading.lock().await;
        if let Some(snapshot) = self.fresh(&entry) {
            return Ok(Seen { snapshot, stale: false }); // read while we waited
        }
        let old = entry.newest();
        if let Some(snapshot) = old.clone().filter(|_| self.clock.monotonic() < *retry_at) {
            self.metrics.stale_answers.inc();
            return Ok(Seen { snapshot, stale: true });
        }
        match self.load(subject).await {
            Ok(snapshot) => {
                let snapshot = Arc::new(snapshot);
                entry.replace(snapshot.clone());
                Ok(Seen { snapshot, stale: false })
            }
            Err(error) => {
                *retry_at = self.clock.monotonic() + RETRY_AFTER;
                self.fall_back(old, error)
            }
        }
    }

    fn fresh(&self, entry: &Entry) -> Option<Arc<Snapshot>> {
        let snapshot = entry.newest()?;
        let age = self.clock.monotonic().saturating_sub(snapshot.read_at);
        (age < self.settings.reduce_interval()).then_some(snapshot)
    }

    /// One read of one store partition. The watermark is taken before it, so that it is true of
    /// what is read after.
    async fn load(&self, subject: &SubjectId) -> Result<Snapshot, StoreError> {
        self.metrics.store_reads.inc();
        let (as_of_ms, read_at) = (self.watermark.get(self.partitions), self.clock.monotonic());
        let rows = self.store.read_subject(subject).await?;
        let as_of_ms = if mutant!("watermark-after-read") {
            self.watermark.get(self.partitions)
        } else {
            as_of_ms
        };
        Ok(Snapshot::new(reduce(&rows, self.epoch), as_of_ms, read_at))
    }

    /// The dead letters of the last `days` days, at most `limit`.
    pub(crate) async fn dead_letters(
        &self,
        days: u16,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, ReadError> {
        let today = day_of(self.clock.unix_ms());
        let mut letters = Vec::new();
        for partition in (0..self.partitions).map(Partition) {
            // A clock that is behind the log's must not hide what was just set aside.
            for day in today - i32::from(days) + 1..=today + 1 {
                let left = limit.saturating_sub(letters.len());
                if left == 0 {
                    return Ok(letters);
                }
                let more = self.store.read_dead_letters(partition, day, left).await;
                letters.extend(more.map_err(ReadError::from)?);
            }
        }
        Ok(letters)
    }

    fn fall_back(&self, old: Option<Arc<Snapshot>>, error: StoreError) -> Result<Seen, ReadError> {
        match old {
            Some(snapshot) => {
                self.metrics.stale_answers.inc();
                Ok(Seen { snapshot, stale: true })
            }
            None => {
                self.metrics.failures.inc();
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_proto::{AsOf, CounterId, Fact, Lane};
    use tally_service::clock::ManualClock;
    use tally_store::{FactRow, MemoryStore, Progress};

    use super::*;

    fn reader(clock: Arc<ManualClock>, store: Arc<MemoryStore>) -> Reader {
        Reader::new(Context {
            store,
            partitions: 1,
            epoch: Epoch::FIRST,
            kinds: Arc::new(Kinds::built_in()),
            settings: ReaderSettings::default(),
            clock,
            health: Health::default(),
            metrics: Metrics::default(),
        })
    }

    fn row(as_of: u64, total: i64) -> FactRow {
        let fact = Fact {
            epoch: Epoch::FIRST,
            as_of: AsOf(as_of),
            generation: 0,
            total,
            members: tally_proto::Members::None,
        };
        let counter = CounterId::new("default", "view", "a").unwrap();
        FactRow { counter, lane: Lane(0), partition: Partition(0), fact }
    }

    #[tokio::test]
    async fn a_cached_total_is_served_for_the_reduce_interval_and_keeps_its_as_of() {
        let (clock, store) = (ManualClock::at(10_000), Arc::new(MemoryStore::default()));
        let reader = reader(clock.clone(), store.clone());
        let subject = SubjectId::new("default", "a").unwrap();
        let progress = Progress {
            partition: Partition(0),
            aggregator: "x".into(),
            as_of: AsOf(1),
            caught_up_at_ms: 9_500,
        };
        reader.watermark.update(&[progress]);
        store.write_facts(&[row(1, 5)]).await.unwrap();
        let total = |seen: &Seen| seen.snapshot.counters["view"].reduced.total;
        let first = reader.read(&subject).await.unwrap();
        let as_of = first.snapshot.as_of.as_ref().map(|(ms, _)| *ms);
        assert_eq!((total(&first), as_of), (5, Some(9_500)));
        store.write_facts(&[row(2, 6)]).await.unwrap();
        clock.advance(999);
        assert_eq!(total(&reader.read(&subject).await.unwrap()), 5);
        clock.advance(1);
        assert_eq!(total(&reader.read(&subject).await.unwrap()), 6);
    }
}
