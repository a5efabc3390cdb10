//! A partition that this aggregator owns: its engine, and what must happen before it may fold.

use std::collections::VecDeque;
use std::time::Duration;

use tally_log::RecordBatch;
use tally_proto::Offset;
use tally_service::mutant;

use crate::engine::{Engine, Folded};
use crate::progress::CaughtUp;

/// After so long without a word from the log, its last record is compared before any is counted.
const SILENCE: Duration = Duration::from_secs(5);

/// And so often in any case.
const RECOGNISE_EVERY: Duration = Duration::from_secs(30);

/// A partition that stopped is opened again so much later: what was wrong may be mended.
const REOPEN_AFTER: Duration = Duration::from_secs(30);

/// How far a partition got.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Its checkpoint is loaded and compared with the log.
    Opening,
    /// It folds.
    Running(Box<Engine>),
    /// An operator must look; it is opened again then, to see whether that has happened.
    Stopped {
        /// When.
        reopen_at: Duration,
    },
}

/// What folding the backlog asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: go on.
    Fine,
    /// Records are missing: ask the log which one stands next, from here on.
    Ask(Offset),
    /// The partition must stop, and why.
    Stop(String),
}

/// One owned partition.
#[derive(Debug)]
pub(crate) struct Owned {
    /// Which assignment it came with: what belongs to an earlier one is void.
    pub(crate) assignment: u64,
    pub(crate) phase: Phase,
    pub(crate) caught_up: CaughtUp,
    /// Whether the consumer was told to pause.
    pub(crate) paused: bool,
    /// Loads of bases and of entries of the ledger under way.
    pub(crate) loads: usize,
    pub(crate) entry_loads: usize,
    /// The earliest time of the next flush.
    pub(crate) next_flush: Duration,
    /// Flushes that failed one after the other.
    pub(crate) failures: u32,
    backlog: VecDeque<RecordBatch>,
    heard_at: Duration,
    recognised_at: Duration,
    /// Reasons to doubt the log so far; nothing is folded before all of them are cleared.
    doubts: u64,
    cleared: u64,
    /// The doubts that the comparison under way will clear, and when it began: later ones ask for
    /// another.
    recognising: Option<(u64, Duration)>,
    /// The log is asked what stands in the place of missing records: what comes meanwhile will
    /// come again.
    is_asking: bool,
    /// The consumer lost its place, and must be opened again once the log is recognised.
    lost_place: bool,
}

impl Owned {
    pub(crate) fn new(assignment: u64, now: Duration) -> Self {
        Owned {
            assignment,
            phase: Phase::Opening,
            caught_up: CaughtUp::default(),
            paused: false,
            loads: 0,
            entry_loads: 0,
            next_flush: now,
            failures: 0,
            backlog: VecDeque::new(),
            heard_at: now,
            recognised_at: now,
            doubts: 0,
            cleared: 0,
            recognising: None,
            is_asking: false,
            lost_place: false,
        }
    }

    pub(crate) fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.phase {
            Phase::Running(engine) => Some(engine),
            Phase::Opening | Phase::Stopped { .. } => None,
        }
    }

    /// The partition folds from here on. The log was recognised since it was assigned, and nobody
    /// knows when: if that is long ago (this process was frozen, say), it is recognised again.
    pub(crate) fn run(&mut self, engine: Engine) {
        self.phase = Phase::Running(Box::new(engine));
    }

    /// The partition stops; what waits is dropped, and replayed after the operator has acted.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.phase = Phase::Stopped { reopen_at: now + REOPEN_AFTER };
        self.backlog.clear();
    }

    /// Whether it stopped long ago, and should be tried again.
    pub(crate) fn is_to_reopen(&self, now: Duration) -> bool {
        matches!(self.phase, Phase::Stopped { reopen_at } if now >= reopen_at)
    }

    /// Records came; they are folded by [`Owned::pump`].
    pub(crate) fn receive(&mut self, batch: RecordBatch, now: Duration) {
        self.hear(now);
        if !self.is_asking && !matches!(self.phase, Phase::Stopped { .. }) {
            self.backlog.push_back(batch);
        }
    }

    /// The log spoke of the partition: after a long silence it must be recognised first.
    pub(crate) fn hear(&mut self, now: Duration) {
        if self.is_silent(now) {
            self.doubt();
        }
        self.heard_at = now;
    }

    /// The log is in trouble: nothing is folded before it was recognised.
    pub(crate) fn doubt(&mut self) {
        if !mutant!("no-doubt") {
            self.doubts += 1;
        }
    }

    /// The place that the consumer reads at does not exist.
    pub(crate) fn lose_place(&mut self) {
        self.doubt();
        self.lost_place = true;
    }

    fn is_doubted(&self) -> bool {
        self.doubts != self.cleared
    }

    /// The log has said which record stands next; the consumer must be opened again.
    pub(crate) fn answered(&mut self, expected: Offset, next: Option<Offset>) {
        self.is_asking = false;
        match next {
            Some(next) => self.engine().into_iter().for_each(|e| e.skip_hole(expected, next)),
            None => self.doubt(), // it delivered a record that is not there
        }
    }

    /// Whether the log has not spoken of the partition for long.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard_at) > SILENCE
    }

    /// Whether everything that came was folded.
    pub(crate) fn is_drained(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Folds one batch that waits, if it may; says whether there may be more.
    pub(crate) fn pump(&mut self) -> Option<Next> {
        if self.is_doubted() {
            return None;
        }
        let Phase::Running(engine) = &mut self.phase else { return None };
        if engine.is_full() {
            return None;
        }
        let batch = self.backlog.pop_front()?;
        Some(match engine.fold(&batch.records) {
            Ok(Folded::All) => Next::Fine,
            Ok(Folded::Hole { expected }) => {
                self.backlog.clear();
                self.is_asking = true;
                Next::Ask(expected)
            }
            Err(stop) => Next::Stop(stop.to_string()),
        })
    }

    /// Whether the log must be recognised now; if so, it counts as begun.
    pub(crate) fn begin_recognising(&mut self, now: Duration) -> bool {
        let due = now.saturating_sub(self.recognised_at) > RECOGNISE_EVERY;
        let begin = self.recognising.is_none() && (self.is_doubted() || due);
        if begin {
            self.recognising = Some((self.doubts, now));
        }
        begin
    }

    /// The log was recognised; says whether the consumer must be opened again.
    pub(crate) fn recognised(&mut self, now: Duration) -> bool {
        if let Some((doubts, begun)) = self.recognising.take() {
            self.cleared = doubts;
            if now.saturating_sub(begun) > RECOGNISE_EVERY {
                self.doubt(); // what was true so long ago says nothing (this process was frozen, say)
            }
        }
        self.recognised_at = now;
        self.heard_at = now;
        std::mem::take(&mut self.lost_place)
    }
}
