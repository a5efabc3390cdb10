//! The next epoch: how counting goes on after a log was replaced on purpose.
//!
//! Checkpoints are frozen first, so that whoever still counts in the old epoch stops; then every
//! row is written again under the new epoch, which outranks whatever a late writer of the old one
//! still sends; the layout is switched last. Each step may be repeated: a move that broke off goes
//! on when it is started again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use tally_log::{EventLog, Found};
use tally_proto::{AsOf, Checkpoint, Epoch, Layout, Offset, Partition, SubjectId};
use tally_service::clock::sleep;
use tally_service::mutant;
use tally_store::{FactRow, FactStore};

/// Subjects of one page, and subjects that are rewritten at once.
const PAGE: usize = 1_000;
const IN_FLIGHT: usize = 64;

/// Owners compare their checkpoint every 30 s: after so long all of them have stopped.
pub const UNTIL_ALL_STOPPED: Duration = Duration::from_secs(45);

/// Where a partition begins whose log is not the one that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With the oldest record there is: a topic that was made anew.
    Start,
    /// After the newest record there is: all of them were counted.
    End,
    /// With this record: a topic that was truncated here.
    At(Offset),
}

/// What a move needs.
pub struct Move {
    /// The log that is counted from now on.
    pub log: Arc<dyn EventLog>,
    /// The store.
    pub store: Arc<dyn FactStore>,
    /// The layout in force.
    pub layout: Layout,
    /// Where replaced partitions begin.
    pub begin: Begin,
    /// How long to wait until every owner has noticed; zero if none runs.
    pub wait: Duration,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many checkpoints are frozen.
    Frozen(u32),
    /// Owners get so long to notice.
    Waiting(Duration),
    /// So many rows are written under the new epoch.
    Rebased(u64),
}

/// What a move did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The epoch that is in force now.
    pub epoch: Epoch,
    /// Where each partition goes on, and whether its log was replaced.
    pub partitions: Vec<(AsOf, bool)>,
    /// Rows that were written under the new epoch.
    pub rows: u64,
}

/// Moves counting to the next epoch.
pub async fn next(context: Move, mut tell: impl FnMut(Step)) -> anyhow::Result<Moved> {
    let Move { log, store, layout, begin, wait } = context;
    ensure!(
        layout.partitions == log.partitions(),
        "the layout fixes {} partitions for life, but topic '{}' has {}: make it anew with {0}",
        layout.partitions,
        log.topic(),
        log.partitions()
    );
    let epoch = Epoch::new(u64::from(layout.epoch) + 1)?;
    let is_other_log = layout.cluster != log.cluster() || layout.topic != log.topic();
    let mut partitions = Vec::new();
    for partition in (0..layout.partitions).map(Partition) {
        let found = store.load_checkpoint(partition).await?;
        let (frozen, is_replaced) = match found {
            // A move that broke off: what it decided stands.
            Some(frozen) if frozen.epoch == epoch => (frozen, frozen.last.is_none()),
            _ => start(&*log, partition, found, is_other_log, begin, epoch).await?,
        };
        if !mutant!("no-freeze") {
            store.write_checkpoint(partition, &frozen).await?;
        }
        partitions.push((frozen.as_of, is_replaced));
        tell(Step::Frozen(partition.0 + 1));
    }
    tell(Step::Waiting(wait));
    sleep(wait).await;
    let rows = rebase(&*store, epoch, &partitions, &mut tell).await?;
    let moved = Layout {
        cluster: log.cluster().to_owned(),
        topic: log.topic().to_owned(),
        epoch: epoch.number(),
        ..layout.clone()
    };
    let in_force = store.replace_layout(&layout, &moved).await?;
    ensure!(in_force == moved, "somebody else changed the layout meanwhile: {in_force:?}");
    Ok(Moved { epoch, partitions, rows })
}

/// Where a partition goes on: at its checkpoint if the log is still the same there, else where the
/// operator says.
async fn start(
    log: &dyn EventLog,
    partition: Partition,
    found: Option<Checkpoint>,
    is_other_log: bool,
    begin: Begin,
    epoch: Epoch,
) -> anyhow::Result<(Checkpoint, bool)> {
    let bounds = log.bounds(partition).await?;
    if let Some(found @ Checkpoint { as_of, last: Some(last), .. }) =
        found.filter(|_| !is_other_log)
    {
        let is_same = match log.read_at(partition, last.offset).await? {
            Found::Record(record) => record == last,
            Found::Nothing(bounds) => bounds.start == as_of.next(),
        };
        if is_same {
            // Ids that retention took are forgotten from here on: that was on purpose, too.
            let window_from = found.window_from.max(AsOf(bounds.start.0)).min(as_of);
            return Ok((Checkpoint { epoch, window_from, ..found }, false));
        }
    }
    let from = match begin {
        Begin::Start => bounds.start,
        Begin::End => bounds.end,
        Begin::At(offset) if (bounds.start..=bounds.end).contains(&offset) => offset,
        Begin::At(offset) => bail!(
            "partition {partition} holds offsets {} to {}, it cannot begin at {offset}",
            bounds.start,
            bounds.end
        ),
    };
    // Ids of the log that is gone are forgotten with it.
    let as_of = AsOf(from.0);
    Ok((Checkpoint { epoch, as_of, last: None, window_from: as_of }, true))
}

/// Writes every row of an earlier epoch again under the new one; says how many.
async fn rebase(
    store: &dyn FactStore,
    epoch: Epoch,
    partitions: &[(AsOf, bool)],
    tell: &mut impl FnMut(Step),
) -> anyhow::Result<u64> {
    let (mut rows, mut after) = (0, None);
    loop {
        let subjects = store.list_subjects(after.as_ref(), PAGE).await?;
        let Some(last) = subjects.last().cloned() else { return Ok(rows) };
        let rewrites = subjects.iter().map(|subject| rewrite(store, epoch, partitions, subject));
        let written: Vec<u64> =
            stream::iter(rewrites).buffer_unordered(IN_FLIGHT).try_collect().await?;
        rows += written.iter().sum::<u64>();
        tell(Step::Rebased(rows));
        after = Some(last);
    }
}

async fn rewrite(
    store: &dyn FactStore,
    epoch: Epoch,
    partitions: &[(AsOf, bool)],
    subject: &SubjectId,
) -> anyhow::Result<u64> {
    let mut rows: Vec<FactRow> = store.read_subject(subject).await?;
    rows.retain(|row| row.fact.epoch < epoch && !mutant!("lazy-rebase"));
    for row in &mut rows {
        let of_partition = partitions.get(row.partition.0 as usize);
        let (start, is_replaced) = of_partition.copied().context("a row of no partition")?;
        // Of a log that is still the same, a row may hold more than the checkpoint says.
        let as_of = if is_replaced { start } else { row.fact.as_of };
        (row.fact.epoch, row.fact.as_of) = (epoch, as_of);
    }
    store.write_facts(&rows).await?;
    Ok(rows.len() as u64)
}
