//! The oracle: judges every write that is sent to the store, and every answer of a reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tally_proto::{
    AsOf, Checkpoint, CounterId, Epoch, LedgerEntry, Members, Partition, route, slot_of,
};
use tally_store::FactRow;

use crate::log::SimLog;
use crate::store::SimStore;
use crate::truth::Truth;
use crate::world::LIKE_SPREAD;

/// Remembers the first thing that was wrong. Clones share it.
#[derive(Clone)]
pub(crate) struct Oracle {
    log: SimLog,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    wrong: Option<String>,
    /// How many writes were judged, and a sum over all of them: two runs of a seed agree in both.
    writes: u64,
    digest: u64,
    /// What an operator's move to the next epoch made of each row, and where partitions begin.
    bases: BTreeMap<(CounterId, Partition), (AsOf, i64)>,
    starts: BTreeMap<Partition, AsOf>,
}

impl Oracle {
    /// An oracle that knows what the log says.
    pub(crate) fn new(log: SimLog) -> Self {
        Oracle { log, seen: Arc::default() }
    }

    /// Something is wrong.
    pub(crate) fn accuse(&self, what: String) {
        self.seen.lock().wrong.get_or_insert(what);
    }

    /// The first thing that was wrong.
    pub(crate) fn verdict(&self) -> Option<String> {
        self.seen.lock().wrong.clone()
    }

    /// How many writes were judged, and what they were, as one number.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let seen = self.seen.lock();
        (seen.writes, seen.digest)
    }

    fn note(&self, numbers: &[u64]) {
        let mut seen = self.seen.lock();
        seen.writes += 1;
        for number in numbers {
            seen.digest = (seen.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    /// A fact is sent: it must be a true sentence about the prefix that it names.
    pub(crate) fn on_fact(&self, row: &FactRow) {
        let fact = &row.fact;
        self.note(&[u64::from(row.partition.0), fact.as_of.0, fact.total.cast_unsigned()]);
        let is_true = if fact.epoch == Epoch::FIRST {
            let is_so = |truth: &Truth| {
                truth.total(&row.counter, fact.as_of) == fact.total
                    && truth.generation(&row.counter, fact.as_of) == fact.generation
            };
            self.log.versions(row.partition, is_so).into_iter().any(|so| so)
        } else {
            self.moved(&row.counter, row.partition, fact.as_of) == fact.total
        };
        if fact.epoch == Epoch::FIRST && !self.lists_whom_it_counts(row) {
            self.accuse(format!("false fact: {row:?} does not say who is in"));
        }
        if !is_true {
            let says = self.log.versions(row.partition, |t| t.total(&row.counter, fact.as_of));
            self.accuse(format!(
                "false fact: {} in partition {} stands at {} as of {}; the log says {says:?}",
                row.counter, row.partition, fact.total, fact.as_of
            ));
        }
    }

    /// Whether some partition knows of a reset that this one did not know of then.
    fn is_reset_elsewhere(&self, counter: &CounterId, here: Partition, as_of: AsOf) -> bool {
        let known = self.log.truth(here, |truth| truth.generation(counter, as_of));
        let end = AsOf(u64::MAX);
        self.log.partitions().any(|p| self.log.truth(p, |t| t.generation(counter, end)) > known)
    }

    /// In the end every partition has a counter's newest reset.
    pub(crate) fn judge_resets(&self) {
        let end = AsOf(u64::MAX);
        let partitions: Vec<Partition> = self.log.partitions().collect();
        let counters = partitions.iter().flat_map(|p| {
            self.log.truth(*p, |truth| truth.counters().cloned().collect::<Vec<_>>())
        });
        for counter in counters.collect::<std::collections::BTreeSet<_>>() {
            let generation = |p: &Partition| self.log.truth(*p, |t| t.generation(&counter, end));
            let generations: Vec<u64> = partitions.iter().map(generation).collect();
            if generations.iter().any(|g| *g != generations[0]) {
                self.accuse(format!("{counter} was reset by half: {generations:?}"));
            }
        }
    }

    fn lists_whom_it_counts(&self, row: &FactRow) -> bool {
        let says = self.log.versions(row.partition, |t| t.set(&row.counter, row.fact.as_of));
        says.into_iter().any(|state| match &row.fact.members {
            Members::None => &*row.counter.kind != "like",
            Members::Inline(members) => {
                state.spilled.is_none() && state.members.iter().eq(members.iter())
            }
            Members::Spilled(since) => state.spilled == Some(since.as_of()),
        })
    }

    /// An entry is sent: its actor must have been so as of where it says.
    pub(crate) fn on_entry(&self, counter: &CounterId, actor: &str, entry: &LedgerEntry) {
        self.note(&[entry.as_of.0, u64::from(entry.is_in)]);
        let partition = self.home(counter, actor);
        let was =
            |truth: &Truth| truth.set(counter, entry.as_of).members.contains(actor) == entry.is_in;
        if !self.log.versions(partition, was).into_iter().any(|so| so) {
            self.accuse(format!("false entry: {actor} of {counter} is not so: {entry:?}"));
        }
    }

    /// Where an actor's events belong.
    pub(crate) fn home(&self, counter: &CounterId, actor: &str) -> Partition {
        let partitions = u32::try_from(self.log.partitions().count()).unwrap_or(1);
        let slot = slot_of(actor, LIKE_SPREAD);
        route(&counter.subject.namespace, &counter.subject.subject, slot, partitions)
    }

    /// An operator moves a row to the next epoch: what it said must have been true.
    pub(crate) fn on_rebase(&self, row: &FactRow) {
        let key = (row.counter.clone(), row.partition);
        let base = (row.fact.as_of, row.fact.total);
        let known = *self.seen.lock().bases.entry(key).or_insert(base);
        if known != base {
            self.accuse(format!("{} is moved as {base:?}, and before as {known:?}", row.counter));
        }
        let was_true = self.log.versions(row.partition, |t| t.ever(&row.counter, row.fact.total));
        if !was_true.into_iter().any(|so| so) {
            self.accuse(format!("{} is moved at {}, which it never was", row.counter, base.1));
        }
    }

    /// An operator freezes a checkpoint: the partition goes on from there.
    pub(crate) fn on_freeze(&self, partition: Partition, checkpoint: &Checkpoint) {
        if checkpoint.last.is_none() {
            self.seen.lock().starts.insert(partition, checkpoint.as_of);
        }
    }

    /// What a counter stands at in the second epoch.
    pub(crate) fn moved(&self, counter: &CounterId, partition: Partition, as_of: AsOf) -> i64 {
        let (since, base) = {
            let seen = self.seen.lock();
            let start = seen.starts.get(&partition).copied().unwrap_or_default();
            let key = (counter.clone(), partition);
            seen.bases.get(&key).copied().unwrap_or((start, 0))
        };
        self.log.truth(partition, |truth| {
            let since = truth.total(counter, since);
            base.wrapping_add(truth.total(counter, as_of)).wrapping_sub(since)
        })
    }

    /// Whether some version of the log says so.
    fn is_true(&self, counter: &CounterId, partition: Partition, as_of: AsOf, total: i64) -> bool {
        let says = self.log.versions(partition, |truth| truth.total(counter, as_of) == total);
        says.into_iter().any(|so| so)
    }

    /// A checkpoint is sent: its last record must stand in the log, and what lies below it must be
    /// where no quorum can miss it.
    pub(crate) fn on_checkpoint(
        &self,
        store: &SimStore,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) {
        let as_of = checkpoint.as_of;
        self.note(&[u64::from(partition.0), as_of.0]);
        let Some(last) = checkpoint.last.filter(|last| last.offset.as_of() == as_of) else {
            return self.accuse(format!("checkpoint {as_of} of {partition} names no last record"));
        };
        if self.log.versions(partition, |_| ()).len() > 1 {
            return; // it may speak of a log that is gone
        }
        let found = self.log.record(partition, last.offset).map(|record| record.fingerprint());
        if found != Some(last) {
            self.accuse(format!("checkpoint {as_of} of {partition} names a record that is not"));
        }
        let missing = self.log.truth(partition, |truth| {
            let misses = |counter: &&CounterId| {
                let Some(last) = truth.last_change(counter, as_of) else { return false };
                let durable = store.durable(counter, partition);
                !durable.is_some_and(|fact| fact.as_of.covers(last))
            };
            truth.counters().find(misses).cloned()
        });
        let misses = |(counter, actor): &(CounterId, Box<str>)| {
            let state = self.log.truth(partition, |truth| truth.set(counter, as_of));
            let Some(since) = state.spilled else { return false };
            let fact = store.durable(counter, partition);
            if let Some(Members::Spilled(newer)) = fact.map(|fact| fact.members)
                && newer.as_of() > as_of
            {
                return false; // a reset came since: who resumes finds that
            }
            let entry = store.durable_entry(counter, actor).filter(|entry| entry.as_of >= since);
            let is_newer = entry.is_some_and(|entry| entry.as_of >= as_of);
            !is_newer && entry.is_some_and(|entry| entry.is_in) != state.members.contains(actor)
        };
        let actors = self.log.truth(partition, |truth| truth.actors());
        let actors = actors
            .into_iter()
            .flat_map(|(c, actors)| actors.into_iter().map(move |a| (c.clone(), a)));
        if let Some((counter, actor)) = actors.into_iter().find(misses) {
            self.accuse(format!(
                "checkpoint {as_of} of partition {partition} is ahead of the entry of {actor} in \
                 {counter}"
            ));
        }
        if let Some(counter) = missing {
            self.accuse(format!(
                "checkpoint {as_of} of partition {partition} is ahead of what is durable of {counter}"
            ));
        }
    }

    /// A reader's shard: it must be a true sentence, and hold what was appended before `at_ms`.
    pub(crate) fn on_shard(
        &self,
        counter: &CounterId,
        partition: Partition,
        shard: Option<(AsOf, i64)>,
        at_ms: Option<i64>,
    ) {
        let (as_of, total) = shard.unwrap_or((AsOf::ZERO, 0));
        let is_true = self.is_true(counter, partition, as_of, total)
            || self.moved(counter, partition, as_of) == total;
        if !is_true {
            self.accuse(format!("a reader says {total} of {counter} in {partition} as of {as_of}"));
        }
        // A log that was replaced keeps no promise about time.
        let is_replaced = self.log.versions(partition, |_| ()).len() > 1;
        let Some(at_ms) = at_ms.filter(|_| !is_replaced) else { return };
        let promised = self.log.end_before(partition, at_ms);
        if shard.is_none() && self.is_reset_elsewhere(counter, partition, promised) {
            return; // what it counted counts no more
        }
        let last = self.log.truth(partition, |truth| truth.last_change(counter, promised));
        if last.is_some_and(|last| !as_of.covers(last)) {
            self.accuse(format!(
                "a reader's answer for {counter} misses {last:?} of partition {partition} (it is as \
                 of {as_of}), though it says that it holds all of before {at_ms}"
            ));
        }
    }
}
