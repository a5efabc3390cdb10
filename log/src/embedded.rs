//! The log embedded in the process: fjall, one folder, nothing to install.
//!
//! Invariants: a record is on the disk before its append returns; appends of many callers share
//! one sync; append times do not go back; segments are dropped whole, oldest first, and never one
//! that holds a record which is not durable in facts.

mod appender;
mod consumer;
mod record;
mod segments;
mod settings;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as blocking;

use async_trait::async_trait;
use fjall::Database;
use parking_lot::{Condvar, Mutex};
use tally_proto::{Offset, Partition};
use tally_service::clock::SharedClock;
use tally_service::stopper::Stopper;
use tokio::sync::oneshot;

use crate::port::{
    AppendError, Bounds, Consume, EventLog, Found, LogConsumer, LogError, NewRecord,
};

pub use settings::EmbeddedLogSettings;

use appender::Append;
use consumer::EmbeddedConsumer;
use segments::Segments;

/// A log in a folder. Appends end when the last clone is dropped.
#[derive(Clone)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    appends: blocking::Sender<Append>,
}

/// What the appender and the consumers see.
struct Shared {
    cluster: String,
    segments: Mutex<Segments>,
    /// Signalled after each append.
    appended: Condvar,
    /// Pulled when the folder takes no writes any more, for as long as it stays open.
    broken: Stopper,
}

impl From<fjall::Error> for LogError {
    fn from(error: fjall::Error) -> Self {
        LogError::Unavailable(error.to_string())
    }
}

impl EmbeddedLog {
    /// Opens the log of a folder, or makes one with `partitions` partitions (8 if none are named).
    pub fn open(
        folder: &Path,
        partitions: Option<u32>,
        settings: EmbeddedLogSettings,
        clock: SharedClock,
    ) -> Result<Self, LogError> {
        let database = Database::builder(folder)
            .open()
            .map_err(|error| LogError::Unsuitable(error.to_string()))?;
        let (cluster, segments) = Segments::open(database, partitions, settings, &*clock)?;
        let shared = Arc::new(Shared {
            cluster,
            segments: Mutex::new(segments),
            appended: Condvar::new(),
            broken: Stopper::new(),
        });
        let (appends, inbox) = blocking::channel();
        appender::start(shared.clone(), inbox, clock)
            .map_err(|error| LogError::Unavailable(error.to_string()))?;
        Ok(EmbeddedLog { shared, appends })
    }
}

fn no_such(partition: Partition) -> LogError {
    LogError::Unsuitable(format!("the log has no partition {partition}"))
}

#[async_trait]
impl EventLog for EmbeddedLog {
    fn cluster(&self) -> &str {
        &self.shared.cluster
    }

    fn topic(&self) -> &str {
        "embedded"
    }

    fn partitions(&self) -> u32 {
        self.shared.segments.lock().partitions()
    }

    async fn append(&self, partition: Partition, record: NewRecord) -> Result<Offset, AppendError> {
        let gone = || AppendError::Refused("the embedded log is closed".into());
        let (reply, answer) = oneshot::channel();
        self.appends.send(Append { partition, record, reply }).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(AppendError::InDoubt("the log was closed".into())))
    }

    async fn broken(&self) -> String {
        self.shared.broken.stopped().await;
        "the embedded log takes no writes any more (is its disk full?): make room, start it again"
            .into()
    }

    async fn read_at(&self, partition: Partition, offset: Offset) -> Result<Found, LogError> {
        let segments = self.shared.segments.lock();
        let bounds = segments.bounds(partition).ok_or_else(|| no_such(partition))?;
        let record = segments.read(partition, offset, 1)?.pop();
        Ok(match record.filter(|record| record.offset == offset) {
            Some(record) => Found::Record(record.fingerprint()),
            None => Found::Nothing(bounds),
        })
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, LogError> {
        self.shared.segments.lock().bounds(partition).ok_or_else(|| no_such(partition))
    }

    fn consumer(&self, consume: Consume) -> Result<Box<dyn LogConsumer>, LogError> {
        let assigned = match consume {
            Consume::Assign(partitions) => partitions,
            Consume::Group(_) => (0..self.partitions()).map(Partition).collect(),
        };
        Ok(Box::new(EmbeddedConsumer::new(self.shared.clone(), assigned)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tally_proto::ContentType;
    use tally_service::clock::{ManualClock, SystemClock};

    use super::*;

    fn record(size: usize) -> NewRecord {
        let value = Bytes::from(vec![b'x'; size]);
        NewRecord { key: Bytes::new(), value, content_type: ContentType::Json }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_embedded_log_keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let settings = EmbeddedLogSettings::default();
        let log =
            EmbeddedLog::open(folder.path(), Some(4), settings, SystemClock::shared()).unwrap();
        crate::contract::run(Arc::new(log)).await;
    }

    #[tokio::test]
    async fn a_log_opened_again_goes_on_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let settings = EmbeddedLogSettings::default();
            EmbeddedLog::open(folder.path(), Some(2), settings, SystemClock::shared()).unwrap()
        };
        let log = open();
        let cluster = log.cluster().to_owned();
        for n in 0..3 {
            assert_eq!(log.append(Partition(1), record(10)).await, Ok(Offset(n)));
        }
        let found = log.read_at(Partition(1), Offset(2)).await.unwrap();
        drop(log);
        std::thread::yield_now();
        let log = reopened(open).await;
        assert_eq!(log.cluster(), cluster);
        assert_eq!(log.read_at(Partition(1), Offset(2)).await, Ok(found));
        assert_eq!(log.append(Partition(1), record(10)).await, Ok(Offset(3)));
        assert_eq!(log.append(Partition(0), record(10)).await, Ok(Offset(0)));
    }

    /// The appender lets go of the folder a moment after the log was dropped.
    async fn reopened(open: impl Fn() -> EmbeddedLog) -> EmbeddedLog {
        tally_service::clock::sleep(std::time::Duration::from_millis(300)).await;
        open()
    }

    /// A power cut leaves the last write torn anywhere, with zeros behind: the file is as long as it
    /// may grow from the beginning.
    #[tokio::test]
    async fn a_log_torn_at_any_byte_of_its_last_write_opens_with_what_was_written_before() {
        let folder = tempfile::tempdir().unwrap();
        let open = |folder: &Path| {
            let settings = EmbeddedLogSettings::default();
            EmbeddedLog::open(folder, Some(1), settings, SystemClock::shared()).unwrap()
        };
        let journal = |folder: &Path| folder.join("0.jnl");
        let written = |folder: &Path| {
            let bytes = std::fs::read(journal(folder)).unwrap();
            bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
        };
        let log = open(folder.path());
        log.append(Partition(0), record(10)).await.unwrap();
        let first = written(folder.path());
        log.append(Partition(0), record(10)).await.unwrap();
        let second = written(folder.path());
        for cut in first..second {
            let torn = tempfile::tempdir().unwrap();
            copy(folder.path(), torn.path());
            let file = std::fs::File::options().write(true).open(journal(torn.path())).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(cut as u64).unwrap();
            file.set_len(length).unwrap();
            let bounds = open(torn.path()).bounds(Partition(0)).await.unwrap();
            assert_eq!(bounds.end, Offset(1), "cut at {cut} of {second}");
        }
    }

    fn copy(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                std::fs::create_dir(&to).unwrap();
                copy(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn another_partition_count_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |partitions| {
            let settings = EmbeddedLogSettings::default();
            EmbeddedLog::open(folder.path(), Some(partitions), settings, SystemClock::shared())
        };
        drop(open(2).unwrap());
        tally_service::clock::sleep(std::time::Duration::from_millis(300)).await;
        let Err(LogError::Unsuitable(message)) = open(3) else { panic!("refused") };
        assert!(message.contains('2') && message.contains('3'), "{message}");
    }

    #[tokio::test]
    async fn segments_are_dropped_when_due_and_never_while_they_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(1_000_000);
        let settings = EmbeddedLogSettings {
            retention_bytes: 30_000,
            segment_bytes: 10_000,
            ..<_>::default()
        };
        let log = EmbeddedLog::open(folder.path(), Some(2), settings, clock).unwrap();
        for _ in 0..100 {
            log.append(Partition(0), record(1_000)).await.unwrap();
        }
        assert_eq!(log.bounds(Partition(0)).await.unwrap().start, Offset(0), "nothing is folded");
        log.consumer(Consume::Assign(vec![])).unwrap().report(Partition(0), Offset(60), Offset(50));
        for _ in 0..20 {
            log.append(Partition(0), record(1_000)).await.unwrap();
        }
        let start = log.bounds(Partition(0)).await.unwrap().start;
        assert!(start > Offset(30) && start <= Offset(50), "{start}");
        let found = log.read_at(Partition(0), Offset(0)).await.unwrap();
        assert!(matches!(found, Found::Nothing(bounds) if bounds.start == start));
        assert!(matches!(log.read_at(Partition(0), start).await, Ok(Found::Record(_))));
    }

    #[tokio::test]
    async fn append_times_do_not_go_back_with_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(1_000_000);
        let settings = EmbeddedLogSettings::default();
        let log = EmbeddedLog::open(folder.path(), Some(1), settings, clock.clone()).unwrap();
        log.append(Partition(0), record(1)).await.unwrap();
        clock.advance(-500_000);
        log.append(Partition(0), record(1)).await.unwrap();
        let Ok(Found::Record(second)) = log.read_at(Partition(0), Offset(1)).await else {
            panic!("it stands")
        };
        assert_eq!(second.append_time_ms, 1_000_000);
    }
}
