//! What the runner sends out: everything that waits for a log or a store.
//!
//! Each task retries what may succeed later, reports outages to `/readyz` and the log, and comes
//! back with a [`Done`]; none touches an engine.

use std::sync::Arc;
use std::time::Duration;

use tally_log::{Bounds, EventLog, Found, LogError};
use tally_proto::{AsOf, Checkpoint, CounterId, Epoch, Fact, Fingerprint, Lane, Offset, Partition};
use tally_service::backoff::backoff;
use tally_service::clock::{SharedClock, sleep};
use tally_service::health::Health;
use tally_service::stopper::Stopper;
use tally_store::{FactStore, Progress, StoreError};

use crate::engine::Flush;

const FIRST_RETRY: Duration = Duration::from_millis(50);
const MOST_RETRY: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Debug)]
pub(crate) enum Done {
    /// Where the fold may begin.
    Opened(Result<Option<Checkpoint>, String>),
    /// The bases of these counters.
    Loaded(Vec<CounterId>, Result<Vec<Option<(Lane, Fact)>>, String>),
    /// A flush was written, or must be repeated, or the partition must stop.
    Flushed(Result<Wrote, StoreError>),
    /// The log is still the one that was folded, or why not.
    Recognised(Result<(), String>),
    /// Between this as-of and this observed end there are no records.
    TailIsEmpty(AsOf, Offset),
    /// There was nothing to be found out.
    Nothing,
}

/// What a flush wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrote {
    pub(crate) rows: usize,
    pub(crate) dead_letters: usize,
    pub(crate) took: Duration,
}

/// What tasks work with.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) store: Arc<dyn FactStore>,
    pub(crate) clock: SharedClock,
    pub(crate) health: Health,
    pub(crate) stopper: Stopper,
    pub(crate) epoch: Epoch,
}

impl Work {
    /// Loads the checkpoint and finds out whether the log is the one that it speaks of.
    pub(crate) async fn open(self, partition: Partition) -> Done {
        Done::Opened(self.find_start(partition).await)
    }

    async fn find_start(&self, partition: Partition) -> Result<Option<Checkpoint>, String> {
        let load = || self.store.load_checkpoint(partition);
        match self.ask_store(load).await? {
            Some(checkpoint) if checkpoint.epoch != self.epoch => Err(format!(
                "its checkpoint belongs to epoch {}, but the layout says epoch {}",
                checkpoint.epoch, self.epoch
            )),
            Some(checkpoint) => {
                self.recognise_last(partition, checkpoint.last).await?;
                Ok(Some(checkpoint))
            }
            None => {
                self.is_whole(partition).await?;
                Ok(None)
            }
        }
    }

    /// Loads bases.
    pub(crate) async fn load(self, partition: Partition, counters: Vec<CounterId>) -> Done {
        let loaded = self.ask_store(|| self.store.load_facts(partition, &counters)).await;
        Done::Loaded(counters, loaded)
    }

    /// Writes a flush: rows and dead letters first, the checkpoint when all of them are acked. A
    /// failure is not retried here: the next flush is newer, and holds all of this one.
    pub(crate) async fn flush(self, partition: Partition, flush: Flush) -> Done {
        let started = self.clock.monotonic();
        let written = async {
            let rows = self.store.write_facts(&flush.rows);
            let dead_letters = self.store.write_dead_letters(&flush.dead_letters);
            tokio::try_join!(rows, dead_letters)?;
            match &flush.checkpoint {
                Some(checkpoint) => self.store.write_checkpoint(partition, checkpoint).await,
                None => Ok(()),
            }
        }
        .await;
        self.health.report("store", written.as_ref().err());
        let took = self.clock.monotonic().saturating_sub(started);
        Done::Flushed(written.map(|()| Wrote {
            rows: flush.rows.len(),
            dead_letters: flush.dead_letters.len(),
            took,
        }))
    }

    /// Compares the last record that was taken in with what the log holds in its place; if none
    /// was, the log must still hold the first one.
    pub(crate) async fn recognise(self, partition: Partition, last: Option<Fingerprint>) -> Done {
        Done::Recognised(match last {
            Some(last) => self.recognise_last(partition, last).await,
            None => self.is_whole(partition).await,
        })
    }

    async fn is_whole(&self, partition: Partition) -> Result<(), String> {
        let bounds = self.ask_log(|| self.log.bounds(partition)).await?;
        if bounds.start > Offset(0) { Err(lost(AsOf::ZERO, bounds)) } else { Ok(()) }
    }

    async fn recognise_last(&self, partition: Partition, last: Fingerprint) -> Result<(), String> {
        self.ask_log(|| self.log.verify()).await?;
        match self.ask_log(|| self.log.read_at(partition, last.offset)).await? {
            Found::Record(found) if found == last => Ok(()),
            Found::Record(found) => Err(format!(
                "the record at offset {} is not the one that was counted (CRC-32C {:08x}, \
                 appended at {}; counted {:08x}, {}): the topic was replaced or truncated. \
                 Nothing more is counted; restore the log, or go on under a new epoch",
                last.offset, found.crc32c, found.append_time_ms, last.crc32c, last.append_time_ms
            )),
            // Retention may take what was counted, and nothing else.
            Found::Nothing(bounds) if bounds.start == last.offset.as_of().next() => Ok(()),
            Found::Nothing(bounds) if bounds.start > last.offset => {
                Err(lost(last.offset.as_of(), bounds))
            }
            Found::Nothing(bounds) => Err(format!(
                "the log ends at offset {}, but offset {} was counted: the topic was replaced or \
                 truncated. Nothing more is counted; restore the log, or go on under a new epoch",
                bounds.end, last.offset
            )),
        }
    }

    /// Where each partition ends, and a time before it was asked. `None`: cannot be known now.
    pub(crate) async fn ends(self, partitions: Vec<Partition>) -> Vec<(Partition, i64, Offset)> {
        let mut ends = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let at_ms = self.clock.unix_ms();
            match self.log.bounds(partition).await {
                Ok(bounds) => ends.push((partition, at_ms, bounds.end)),
                Err(error) => {
                    self.health.report("log", Some(&error));
                    return ends;
                }
            }
        }
        self.health.report("log", None::<&LogError>);
        ends
    }

    /// Looks whether records stand between what was folded and the end that was observed.
    pub(crate) async fn look_at_tail(self, partition: Partition, from: AsOf, end: Offset) -> Done {
        match self.log.is_tail_empty(partition, from.next()).await {
            Ok(true) => Done::TailIsEmpty(from, end),
            Ok(false) | Err(_) => Done::Nothing, // it is looked at again
        }
    }

    /// Writes progress rows; the next ones are newer, so a failure is only reported.
    pub(crate) async fn progress(self, rows: Vec<Progress>) {
        let written = self.store.write_progress(&rows).await;
        self.health.report("store", written.as_ref().err());
    }

    async fn ask_store<T, F>(&self, call: impl FnMut() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.ask("store", StoreError::is_retryable, call).await
    }

    async fn ask_log<T, F>(&self, call: impl FnMut() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, LogError>>,
    {
        self.ask("log", LogError::is_retryable, call).await
    }

    /// Asks until there is an answer, or an error that trying again does not mend.
    async fn ask<T, E, F>(
        &self,
        part: &str,
        is_retryable: impl Fn(&E) -> bool,
        mut call: impl FnMut() -> F,
    ) -> Result<T, String>
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        for wait in backoff(FIRST_RETRY, MOST_RETRY) {
            match call().await {
                Ok(value) => {
                    self.health.report(part, None::<&E>);
                    return Ok(value);
                }
                Err(error) if is_retryable(&error) => self.health.report(part, Some(&error)),
                Err(error) => return Err(error.to_string()),
            }
            self.wait(wait).await?;
        }
        Err("no more retries".into())
    }

    async fn wait(&self, wait: Duration) -> Result<(), String> {
        let stopped = self.stopper.token();
        stopped.run_until_cancelled(sleep(wait)).await.ok_or_else(|| "stopping".to_owned())
    }
}

fn lost(from: AsOf, bounds: Bounds) -> String {
    format!(
        "offsets {from} to {} were taken by the log's retention before they were counted. \
         Nothing more is counted; restore them, or accept the loss under a new epoch",
        bounds.start.0.saturating_sub(1)
    )
}
