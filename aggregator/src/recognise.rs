//! Recognition: whether the log is still the one that was folded, and the store still holds what
//! it acknowledged. Before a partition is opened, after every doubt, and from time to time.

use tally_log::{Bounds, Found};
use tally_proto::{AsOf, Checkpoint, CounterId, Fingerprint, Offset, Partition};
use tally_service::mutant;

use crate::tasks::{Done, Work};

/// What an owner knows of its partition.
#[derive(Debug)]
pub(crate) struct Known {
    /// The next offset to apply.
    pub(crate) next: AsOf,
    /// The last record that was taken in.
    pub(crate) last: Option<Fingerprint>,
    /// The as-of of the newest checkpoint that was acknowledged to this process.
    pub(crate) acknowledged: AsOf,
    /// Everything below it is durable in facts.
    pub(crate) durable: AsOf,
    /// Totals that the store acknowledged, and that did not change up to `durable`.
    pub(crate) sample: Vec<(CounterId, i64)>,
}

impl Work {
    /// Loads the checkpoint and finds out whether the log is the one that it speaks of. A
    /// checkpoint below `floor` was acknowledged already, and must not be gone.
    pub(crate) async fn open(self, partition: Partition, floor: AsOf) -> Done {
        Done::Opened(self.find_start(partition, floor).await)
    }

    async fn find_start(
        &self,
        partition: Partition,
        floor: AsOf,
    ) -> Result<Option<Checkpoint>, String> {
        let checkpoint = self.checkpoint(partition, floor).await?;
        if !mutant!("no-fingerprint") {
            let (as_of, last) = place(checkpoint);
            self.recognise_log(partition, as_of, last).await?;
        }
        self.shorten_window(partition, checkpoint).await
    }

    /// Retention may have taken records whose ids the checkpoint remembers. That is right if no
    /// event that is still to be counted can match one of them.
    async fn shorten_window(
        &self,
        partition: Partition,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Option<Checkpoint>, String> {
        let Some(mut checkpoint) = checkpoint else { return Ok(None) };
        let bounds = self.ask_log(|| self.log.bounds(partition)).await?;
        let start = AsOf(bounds.start.0);
        if checkpoint.window_from >= start.min(checkpoint.as_of) {
            return Ok(Some(checkpoint));
        }
        // What was taken is no younger than the oldest record that is left, or the last counted.
        let taken_ms = match self.first_time(partition, bounds.start).await? {
            Some((oldest, at_ms)) if checkpoint.as_of.covers(oldest) => Some(at_ms),
            _ => checkpoint.last.map(|last| last.append_time_ms),
        };
        let next_ms = self.first_time(partition, checkpoint.as_of.next()).await?.map(|(_, ms)| ms);
        let apart = next_ms.zip(taken_ms).map(|(next, taken)| next.saturating_sub(taken));
        let span_ms = self.retry_window.span_ms;
        if apart.is_some_and(|apart| apart <= span_ms) {
            return Err(format!(
                "offsets {} to {} were taken by the log's retention, and with them ids by which \
                 repeats among the events from {} on would be known. Nothing more is counted; \
                 restore them, or accept that such repeats count again with `tally epoch next`",
                checkpoint.window_from,
                bounds.start.0.saturating_sub(1),
                checkpoint.as_of
            ));
        }
        checkpoint.window_from = start.min(checkpoint.as_of);
        Ok(Some(checkpoint))
    }

    /// The first record from an offset on, and when it was appended.
    async fn first_time(
        &self,
        partition: Partition,
        from: Offset,
    ) -> Result<Option<(Offset, i64)>, String> {
        let first = self.ask_log(|| self.log.first_from(partition, from)).await?;
        let Some(first) = first else { return Ok(None) };
        Ok(match self.ask_log(|| self.log.read_at(partition, first)).await? {
            Found::Record(record) => Some((first, record.append_time_ms)),
            Found::Nothing(_) => None,
        })
    }

    /// Compares log and store with what is known of them.
    pub(crate) async fn recognise(self, partition: Partition, known: Known) -> Done {
        Done::Recognised(self.is_as_known(partition, known).await)
    }

    async fn is_as_known(&self, partition: Partition, known: Known) -> Result<(), String> {
        let checkpoint = self.checkpoint(partition, known.acknowledged).await?;
        let (as_of, last) = place(checkpoint);
        if as_of > known.next && !mutant!("own-record-only") {
            // Another owner is ahead. Was it in the same log?
            self.recognise_log(partition, as_of, last).await?;
        }
        self.recognise_log(partition, known.next, known.last).await?;
        self.read_back(partition, &known).await
    }

    /// The checkpoint, which must belong to our epoch and not be older than `floor`.
    async fn checkpoint(
        &self,
        partition: Partition,
        floor: AsOf,
    ) -> Result<Option<Checkpoint>, String> {
        let found = self.ask_store(|| self.store.load_checkpoint(partition)).await?;
        if let Some(other) = found.map(|found| found.epoch).filter(|epoch| *epoch != self.epoch) {
            return Err(format!(
                "its checkpoint belongs to epoch {other}, this process to epoch {}: an operator \
                 moves the log to another epoch; start this process again when that is done",
                self.epoch
            ));
        }
        let (as_of, _) = place(found);
        if as_of < floor {
            return Err(format!(
                "the store holds a checkpoint at {as_of}, but acknowledged one at {floor}: it \
                 lost writes, or was restored from an older copy. Nothing more is counted. Make \
                 sure that no fact is older than the checkpoints, then start this process again: \
                 it replays the log from there"
            ));
        }
        Ok(found)
    }

    /// What was acknowledged long ago must still be there.
    async fn read_back(&self, partition: Partition, known: &Known) -> Result<(), String> {
        let counters: Vec<CounterId> = known.sample.iter().map(|(c, _)| c.clone()).collect();
        let facts = self.ask_store(|| self.store.load_facts(partition, &counters)).await?;
        for ((counter, total), found) in known.sample.iter().zip(facts) {
            let (found, as_of) = found.map_or((0, AsOf::ZERO), |(_, f)| (f.total, f.as_of));
            // A newer fact is another owner's, and no older than what was acknowledged.
            if as_of <= known.durable && found != *total {
                return Err(format!(
                    "the store says {found} of {counter} in partition {partition}, but \
                     acknowledged {total}: it lost writes, or rows were restored from an older \
                     copy. Nothing more is counted. Restore a copy in which no fact is older than \
                     the checkpoints, then start this process again"
                ));
            }
        }
        Ok(())
    }

    /// Compares the last record below `as_of` with what the log holds in its place; where none
    /// was taken in, the log must still hold all from there on.
    async fn recognise_log(
        &self,
        partition: Partition,
        as_of: AsOf,
        last: Option<Fingerprint>,
    ) -> Result<(), String> {
        self.ask_log(|| self.log.verify()).await?;
        let Some(last) = last else {
            let bounds = self.ask_log(|| self.log.bounds(partition)).await?;
            return match () {
                () if bounds.start > as_of.next() => Err(lost(as_of, bounds)),
                () if bounds.end < as_of.next() => Err(shorter(as_of, bounds)),
                () => Ok(()),
            };
        };
        match self.ask_log(|| self.log.read_at(partition, last.offset)).await? {
            Found::Record(found) if found == last => Ok(()),
            Found::Record(found) => Err(format!(
                "the record at offset {} is not the one that was counted (CRC-32C {:08x}, \
                 appended at {}; counted {:08x}, {}): the topic was replaced or truncated. \
                 Nothing more is counted; restore the log, or go on with `tally epoch next`",
                last.offset, found.crc32c, found.append_time_ms, last.crc32c, last.append_time_ms
            )),
            // Retention may take what was counted, and nothing else.
            Found::Nothing(bounds) if bounds.start == last.offset.as_of().next() => Ok(()),
            Found::Nothing(bounds) if bounds.start > last.offset => {
                Err(lost(last.offset.as_of(), bounds))
            }
            Found::Nothing(bounds) => Err(shorter(last.offset.as_of(), bounds)),
        }
    }
}

/// Where a fold goes on after a checkpoint, and by which record it knows the log.
fn place(checkpoint: Option<Checkpoint>) -> (AsOf, Option<Fingerprint>) {
    checkpoint.map_or((AsOf::ZERO, None), |checkpoint| (checkpoint.as_of, checkpoint.last))
}

fn shorter(as_of: AsOf, bounds: Bounds) -> String {
    format!(
        "the log ends at offset {}, but everything below {as_of} was counted: the topic was \
         replaced or truncated. Nothing more is counted; restore the log, or go on with \
         `tally epoch next`",
        bounds.end
    )
}

fn lost(from: AsOf, bounds: Bounds) -> String {
    format!(
        "offsets {from} to {} were taken by the log's retention before they were counted. \
         Nothing more is counted; restore them, or accept the loss with `tally epoch next`",
        bounds.start.0.saturating_sub(1)
    )
}
