//! What the runner sends out: everything that waits for a log or a store.
//!
//! Each task retries what may succeed later, reports outages to `/readyz` and the log, and comes
//! back with a [`Done`]; none touches an engine.

use std::sync::Arc;
use std::time::Duration;

use tally_log::{EventLog, LogError, NewRecord};
use tally_proto::{
    AsOf, Checkpoint, CounterId, Epoch, Fact, Lane, LedgerEntry, Offset, Partition, Reset,
    RetryWindow,
};
use tally_service::backoff::backoff;
use tally_service::clock::{SharedClock, sleep};
use tally_service::health::Health;
use tally_service::mutant;
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
    /// What the ledger says of these actors of a counter.
    LoadedEntries(CounterId, Vec<Box<str>>, Result<Vec<Option<LedgerEntry>>, String>),
    /// A flush was written, or must be repeated, or the partition must stop.
    Flushed(Result<Wrote, StoreError>),
    /// Log and store are still what was folded and written, or why not.
    Recognised(Result<(), String>),
    /// From this offset on records were missing; the log says which one stands next.
    Next(Offset, Option<Offset>),
    /// Records from here on are in the log, and were not delivered when it was asked.
    NotDelivered(AsOf),
    /// What was asked cannot be answered, and trying again does not help.
    Failed(String),
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
    /// Where its checkpoint stands.
    pub(crate) checkpoint: Option<AsOf>,
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
    pub(crate) retry_window: RetryWindow,
}

impl Work {
    /// Loads bases.
    pub(crate) async fn load(self, partition: Partition, counters: Vec<CounterId>) -> Done {
        let loaded = if mutant!("error-is-absent") {
            let loaded = self.store.load_facts(partition, &counters).await;
            Ok(loaded.unwrap_or_else(|_| vec![None; counters.len()]))
        } else {
            self.ask_store(|| self.store.load_facts(partition, &counters)).await
        };
        Done::Loaded(counters, loaded)
    }

    /// Loads entries of the ledger.
    pub(crate) async fn load_entries(self, counter: CounterId, actors: Vec<Box<str>>) -> Done {
        let loaded = self.ask_store(|| self.store.load_entries(&counter, &actors)).await;
        Done::LoadedEntries(counter, actors, loaded)
    }

    /// Writes a flush: dead letters first, then facts between the two parts of the ledger, the
    /// checkpoint when all of them are acked. Who finds a fact leaves out the events that it covers, also one that overflowed, so the
    /// dead letter must stand before the fact does. A failure is not retried here: the next flush
    /// is newer, and holds all of this one.
    pub(crate) async fn flush(self, partition: Partition, flush: Flush) -> Done {
        let started = self.clock.monotonic();
        let written = async {
            if let Some(checkpoint) = &flush.checkpoint
                && mutant!("checkpoint-first")
            {
                self.store.write_checkpoint(partition, checkpoint).await?;
            }
            let dead_letters = self.store.write_dead_letters(&flush.dead_letters);
            if mutant!("dead-letters-beside-facts") {
                tokio::try_join!(dead_letters, self.store.write_facts(&flush.rows))?;
            } else {
                dead_letters.await?;
            }
            self.carry(partition, &flush.resets).await?;
            if mutant!("spills-after-facts") {
                self.store.write_facts(&flush.rows).await?;
            }
            if mutant!("entries-before-facts") {
                self.store.write_entries(&flush.entries).await?;
            }
            self.store.write_entries(&flush.spills).await?;
            self.store.write_facts(&flush.rows).await?;
            self.store.write_entries(&flush.entries).await?;
            match &flush.checkpoint {
                Some(checkpoint) => self.store.write_checkpoint(partition, checkpoint).await,
                None => Ok(()),
            }
        }
        .await;
        self.health.report("store", written.as_ref().err());
        let took = self.clock.monotonic().saturating_sub(started);
        Done::Flushed(written.map(|()| Wrote {
            rows: flush.rows.len() + flush.spills.len() + flush.entries.len(),
            dead_letters: flush.dead_letters.len(),
            checkpoint: flush.checkpoint.map(|checkpoint| checkpoint.as_of),
            took,
        }))
    }

    /// Appends resets to every other partition. Whoever has them already takes no notice.
    async fn carry(&self, from: Partition, resets: &[Reset]) -> Result<(), StoreError> {
        if mutant!("reset-stays-home") {
            return Ok(());
        }
        for reset in resets {
            let value = reset.encode();
            for to in (0..self.log.partitions()).map(Partition).filter(|to| *to != from) {
                let appended = self.log.append(to, NewRecord::control(value.clone())).await;
                self.health.report("log", appended.as_ref().err());
                let why = |error| format!("a reset was not carried on: {error}");
                appended.map_err(|error| StoreError::Unavailable(why(error)))?;
            }
        }
        Ok(())
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
        let found = self.log.first_from(partition, from.next()).await;
        let bounds = self.log.bounds(partition).await;
        match (found, bounds) {
            (Ok(None), Ok(bounds)) if bounds.start <= from.next() => Done::TailIsEmpty(from, end),
            (Ok(_), Ok(_)) => Done::NotDelivered(from), // or taken by retention: that will show
            (Err(_), _) | (_, Err(_)) => Done::Nothing, // it is looked at again
        }
    }

    /// Finds out which record stands next, where some seem to be missing.
    pub(crate) async fn find_next(self, partition: Partition, expected: Offset) -> Done {
        match self.ask_log(|| self.log.first_from(partition, expected)).await {
            Ok(next) => Done::Next(expected, next),
            Err(why) => Done::Failed(why),
        }
    }

    /// Writes progress rows; the next ones are newer, so a failure is only reported.
    pub(crate) async fn progress(self, rows: Vec<Progress>) {
        let written = self.store.write_progress(&rows).await;
        self.health.report("store", written.as_ref().err());
    }

    pub(crate) async fn ask_store<T, F>(&self, call: impl FnMut() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.ask("store", StoreError::is_retryable, call).await
    }

    pub(crate) async fn ask_log<T, F>(&self, call: impl FnMut() -> F) -> Result<T, String>
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
