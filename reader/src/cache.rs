//! The cache: one entry a subject, bounded; concurrent misses on one subject are one store read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache as Moka;
use parking_lot::RwLock;
use tally_proto::{SubjectId, compact, rfc3339};
use tokio::sync::Mutex;

use crate::reduce::Reduced;

/// What was read of a subject, with the texts that many answers share.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) counters: BTreeMap<Box<str>, Shown>,
    /// Everything appended before it is in the counters: in milliseconds since 1970, and as text.
    pub(crate) as_of: Option<(i64, String)>,
    /// When it was read, by the monotonic clock.
    pub(crate) read_at: Duration,
}

/// A counter as it is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) reduced: Reduced,
    pub(crate) total: String,
    pub(crate) display: String,
}

impl From<Reduced> for Shown {
    fn from(reduced: Reduced) -> Self {
        let (total, display) = (reduced.total.to_string(), compact(reduced.total));
        Shown { reduced, total, display }
    }
}

impl Snapshot {
    pub(crate) fn new(
        counters: BTreeMap<Box<str>, Reduced>,
        as_of_ms: Option<i64>,
        read_at: Duration,
    ) -> Self {
        let shown = |(kind, reduced): (_, Reduced)| (kind, reduced.into());
        Snapshot {
            counters: counters.into_iter().map(shown).collect(),
            as_of: as_of_ms.map(|ms| (ms, rfc3339(ms))),
            read_at,
        }
    }
}

/// One subject's place in the cache.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    newest: RwLock<Option<Arc<Snapshot>>>,
    /// Held while the store is read; the time before which nobody need try again after a failure.
    pub(crate) reading: Mutex<Duration>,
}

impl Entry {
    pub(crate) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.newest.read().clone()
    }

    pub(crate) fn replace(&self, snapshot: Arc<Snapshot>) {
        *self.newest.write() = Some(snapshot);
    }
}

/// Entries by subject; the least useful ones leave first.
pub(crate) struct Cache(Moka<SubjectId, Arc<Entry>>);

impl Cache {
    pub(crate) fn new(subjects: u64) -> Self {
        Cache(Moka::new(subjects))
    }

    /// The entry of a subject; a new one is empty.
    pub(crate) async fn entry(&self, subject: &SubjectId) -> Arc<Entry> {
        match self.0.get(subject).await {
            Some(entry) => entry,
            None => self.0.get_with_by_ref(subject, async { Arc::default() }).await,
        }
    }
}
