//! The next lane: how counting goes on after somebody wrote to a fact's row without its stamp.
//!
//! Such a cell hides every later fact and cannot be healed, so its lane is given up: the counter's
//! partial is found out anew, and stands in the next lane.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tally_log::{Consume, EventLog, LogError, Polled, Record};
use tally_proto::limits::MAX_LANES;
use tally_proto::{AsOf, CounterId, Epoch, Fact, Kinds, Lane, Members, Mode, Offset, Partition};
use tally_service::clock::sleep;
use tally_store::{FactRow, FactStore, StoreError};
use tokio::runtime::Handle;

use crate::engine::{Engine, EngineLimits, Folded};

/// An owner writes its progress every second or so: after so long a silent one is none.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// How long the log may deliver nothing while it is counted again.
const PATIENCE: u32 = 300;
const POLL_WAIT: Duration = Duration::from_millis(100);

/// What a repair needs.
pub struct Repair {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// The store.
    pub store: Arc<dyn FactStore>,
    /// The epoch in force.
    pub epoch: Epoch,
    /// The kinds that the fold knows.
    pub kinds: Arc<Kinds>,
    /// The partition that stopped.
    pub partition: Partition,
    /// The counter whose row is poisoned.
    pub counter: CounterId,
    /// Its partial as of the checkpoint; if not given, the log is counted again.
    pub total: Option<i64>,
}

/// Writes the poisoned row's partial to the next lane.
pub async fn next(repair: Repair) -> anyhow::Result<FactRow> {
    let Repair { log, store, epoch, kinds, partition, counter, total } = repair;
    let lane = match store.load_facts(partition, std::slice::from_ref(&counter)).await {
        Err(StoreError::Poisoned { lane: Some(Lane(lane)), .. }) => Lane(lane + 1),
        Err(error) => return Err(error.into()),
        Ok(_) => bail!("the row of {counter} in partition {partition} is not poisoned"),
    };
    ensure!(lane.0 < MAX_LANES, "all {MAX_LANES} lanes of {counter} are poisoned");
    let before = store.read_progress(log.partitions()).await?;
    sleep(SILENT_FOR).await;
    for row in store.read_progress(log.partitions()).await? {
        let is_news = row.partition == partition && !before.contains(&row);
        ensure!(!is_news, "{} still folds partition {partition}: stop it first", row.aggregator);
    }
    let checkpoint = store.load_checkpoint(partition).await?;
    let as_of = checkpoint.map_or(AsOf::ZERO, |checkpoint| checkpoint.as_of);
    let fact = match total {
        Some(total) => {
            let is_set = kinds.get(&counter.kind).is_some_and(|kind| kind.mode == Mode::Set);
            ensure!(!is_set, "{counter} counts actors: a total does not say who they are");
            let generation = generation(&*store, log.partitions(), &counter).await?;
            Fact { epoch, as_of, generation, total, members: Members::None }
        }
        None => {
            let start = log.bounds(partition).await?.start;
            ensure!(
                start == Offset(0) && epoch == Epoch::FIRST,
                "the log of partition {partition} does not hold all that was counted any more: \
                 name the partial as of offset {as_of} with --total (from a backup, say)"
            );
            let again = counter.clone();
            let count = move || recount(&*log, kinds, partition, &again, as_of);
            tokio::task::spawn_blocking(count).await.context("counting again has died")??
        }
    };
    let row = FactRow { counter, lane, partition, fact };
    store.write_facts(std::slice::from_ref(&row)).await?;
    Ok(row)
}

/// The highest generation that other partitions know of.
async fn generation(
    store: &dyn FactStore,
    partitions: u32,
    counter: &CounterId,
) -> anyhow::Result<u64> {
    let mut newest = 0;
    for partition in (0..partitions).map(Partition) {
        match store.load_facts(partition, std::slice::from_ref(counter)).await {
            Ok(found) => {
                let found = found.into_iter().flatten().map(|(_, fact)| fact.generation);
                newest = found.fold(newest, u64::max);
            }
            Err(StoreError::Poisoned { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(newest)
}

/// Folds a partition from its beginning, as if nothing were in the store.
fn recount(
    log: &dyn EventLog,
    kinds: Arc<Kinds>,
    partition: Partition,
    counter: &CounterId,
    as_of: AsOf,
) -> anyhow::Result<Fact> {
    let all = EngineLimits {
        counters: usize::MAX,
        pending_events: usize::MAX,
        dead_letter_bytes: usize::MAX,
    };
    let mut engine = Engine::resume((partition, log.partitions()), Epoch::FIRST, kinds, all, None);
    let mut consumer = log.consumer(Consume::Assign(vec![partition]))?;
    let mut silent = 0;
    let mut counted = None;
    while engine.next() < as_of {
        let polled = consumer.poll(POLL_WAIT);
        silent = if polled.is_empty() { silent + 1 } else { 0 };
        ensure!(silent < PATIENCE, "the log does not deliver partition {partition}");
        for event in polled {
            match event {
                Polled::Assigned(_) => consumer.open(partition, Offset(0)),
                Polled::Records(batch) => {
                    let below = batch.records.partition_point(|r| as_of.covers(r.offset));
                    let records = batch.records.get(..below).unwrap_or_default();
                    let asking = |from| Handle::current().block_on(log.first_from(partition, from));
                    fold(&mut engine, records, asking)?;
                    load_nothing(&mut engine)?;
                    if let Some(flush) = engine.begin_flush() {
                        let of_it = flush.rows.into_iter().find(|row| row.counter == *counter);
                        counted = of_it.map(|row| row.fact).or(counted);
                        engine.flushed(true);
                    }
                }
                Polled::Trouble { message, .. } => bail!("the log: {message}"),
                Polled::Revoked(_) | Polled::OutOfRange(_) => {
                    bail!("partition {partition} cannot be read from its beginning")
                }
            }
        }
    }
    let nothing =
        Fact { epoch: Epoch::FIRST, as_of, generation: 0, total: 0, members: Members::None };
    Ok(Fact { as_of, ..counted.unwrap_or(nothing) })
}

/// There are no bases and no entries: all is counted from the beginning.
fn load_nothing(engine: &mut Engine) -> anyhow::Result<()> {
    loop {
        let (counters, entries) =
            (engine.take_loads(usize::MAX), engine.take_entry_loads(usize::MAX));
        if counters.is_empty() && entries.is_empty() {
            return Ok(());
        }
        counters.iter().try_for_each(|counter| engine.loaded(counter, None))?;
        for (counter, actors) in entries {
            engine.entries_loaded(&counter, actors.into_iter().map(|actor| (actor, None)))?;
        }
    }
}

/// Folds all records; as in the runner, a gap is a hole only if the log says so.
fn fold(
    engine: &mut Engine,
    records: &[Record],
    first_from: impl Fn(Offset) -> Result<Option<Offset>, LogError>,
) -> anyhow::Result<()> {
    while let Folded::Hole { expected } = engine.fold(records)? {
        let next = first_from(expected)?.filter(|next| records.iter().any(|r| r.offset == *next));
        let next = next.with_context(|| {
            format!("the log did not deliver the records from offset {expected} on: run it again")
        })?;
        engine.skip_hole(expected, next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tally_proto::ContentType;

    use super::*;

    fn record(offset: u64) -> Record {
        let value = Bytes::from_static(br#"{"kind":"view","subject":"a"}"#);
        let (offset, content_type) = (Offset(offset), ContentType::Json);
        Record { offset, append_time_ms: 1, key: Bytes::new(), value, content_type }
    }

    fn engine() -> Engine {
        let limits = EngineLimits { counters: 9, pending_events: 9, dead_letter_bytes: 9 };
        let kinds = Arc::new(Kinds::built_in());
        Engine::resume((Partition(0), 1), Epoch::FIRST, kinds, limits, None)
    }

    #[test]
    fn many_holes_of_one_batch_are_skipped_and_nothing_else() {
        let records = [record(0), record(2), record(4), record(5)];
        let there = |from: Offset| Ok(records.iter().map(|r| r.offset).find(|o| *o >= from));
        let mut engine = engine();
        fold(&mut engine, &records, there).unwrap();
        assert_eq!(engine.next(), AsOf(6));
    }

    #[test]
    fn a_record_that_was_not_delivered_is_no_hole() {
        let mut engine = engine();
        let folded = fold(&mut engine, &[record(0), record(2)], |from| Ok(Some(from)));
        assert!(folded.unwrap_err().to_string().contains("from offset 1"));
    }
}
