//! Flushing: when a partition is flushed, and what becomes of it.

use std::time::Duration;

use tally_proto::Partition;
use tally_service::clock;
use tally_store::StoreError;

use super::Runner;
use crate::tasks::{Done, Wrote};

/// The longest wait after failed flushes.
const MOST_FLUSH_WAIT: Duration = Duration::from_secs(10);

/// How long a last flush may take when the process stops.
const LAST_FLUSH: Duration = Duration::from_secs(8);

impl Runner {
    pub(super) fn flush_if_due(&mut self, partition: Partition, now: Duration) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        let assignment = owned.assignment;
        let (due, is_well) = (now >= owned.next_flush, owned.failures == 0);
        let Some(engine) = owned.engine() else { return };
        if !(due || is_well && engine.is_full()) {
            return;
        }
        if let Some(flush) = engine.begin_flush() {
            owned.next_flush = now.saturating_add(self.flush_interval);
            let task = self.work.clone().flush(partition, flush);
            self.send(partition, assignment, task);
        }
    }

    pub(super) fn on_flushed(&mut self, partition: Partition, written: Result<Wrote, StoreError>) {
        let (now, interval) = (self.now(), self.flush_interval);
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        let failures = if written.is_ok() { 0 } else { owned.failures.saturating_add(1) };
        owned.failures = failures;
        let Some(engine) = owned.engine() else { return };
        engine.flushed(written.is_ok());
        match written {
            Ok(wrote) => {
                self.metrics.flushed(wrote.took, wrote.rows, wrote.dead_letters);
                if let Some(acknowledged) = wrote.checkpoint {
                    self.floors.insert(partition, acknowledged);
                }
                let (durable, needed) = (engine.durable(), engine.needed());
                self.poller.report(partition, durable.next(), needed.next());
            }
            Err(error) if error.is_retryable() => {
                self.metrics.flush_failures.inc();
                let wait = interval.saturating_mul(1 << failures.min(8)).min(MOST_FLUSH_WAIT);
                owned.next_flush = now + wait;
            }
            Err(error) => self.stop_partition(partition, &error.to_string()),
        }
    }

    /// Waits for flushes under way, then flushes what is left: a restart replays less.
    pub(super) async fn last_flush(&mut self) {
        let flushing = async {
            for round in 0..2 {
                while let Some(Ok((partition, assignment, done))) = self.tasks.join_next().await {
                    if let Done::Flushed(written) = done
                        && self.owned.get(&partition).is_some_and(|o| o.assignment == assignment)
                    {
                        self.on_flushed(partition, written);
                    }
                }
                for partition in self.owned.keys().copied().collect::<Vec<_>>() {
                    if round == 0 {
                        self.flush_if_due(partition, Duration::MAX);
                    }
                }
            }
            self.write_progress();
            while self.progress.join_next().await.is_some() {}
        };
        if clock::timeout(LAST_FLUSH, flushing).await.is_err() {
            tracing::warn!("the last flush did not end in time; it is replayed at the next start");
        }
    }
}
