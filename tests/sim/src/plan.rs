//! The plan of a run: how large the world is, how bad its weather, and which faults come when.
//! Each seed takes a few kinds of faults out of all, so that some runs have much of little.

use std::time::Duration;

use tally_aggregator::engine::EngineLimits;
use tally_proto::RetryWindow;

use crate::dice::Dice;
use crate::log::Glitches;
use crate::process::Weather;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// kill -9 of an aggregator; another takes its place.
    Crash,
    /// An aggregator is asked to stop; another takes its place.
    Stop,
    /// SIGSTOP of an aggregator for a time.
    Freeze(Duration),
    /// An aggregator reaches nothing for a time.
    Cut(Duration),
    /// kill -9 of ingest.
    CrashIngest,
    /// The group deals its partitions anew.
    Rebalance,
    /// A replica of the store is down for a time.
    Down(usize, Duration),
    /// A replica of the store loses what it did not sync.
    PowerCut(usize),
    /// All of them do, at once.
    Blackout,
    /// The log is away for a time.
    Outage(Duration),
    /// Retention takes what is below the checkpoint.
    Retain,
    /// A partition of the log is truncated below its checkpoint, or made anew.
    Replace,
}

/// A window that forgets nothing in a run.
pub(crate) const LARGE_WINDOW: RetryWindow = RetryWindow { ids: 10_000, span_ms: 3_600_000 };

/// What happens in one run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Partitions of the log.
    pub(crate) partitions: u32,
    /// How each aggregator runs: in the group, or with all partitions assigned.
    pub(crate) in_group: Vec<bool>,
    /// From flush to flush.
    pub(crate) flush_ms: u64,
    /// The network.
    pub(crate) weather: Weather,
    /// The consumers.
    pub(crate) glitches: Glitches,
    /// Records with a hole before them, of a thousand.
    pub(crate) holes: u64,
    /// Requests of each client.
    pub(crate) requests: Vec<u64>,
    /// How long things go wrong.
    pub(crate) active: Duration,
    /// What goes wrong, in order of time.
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// Whether actors like things, too.
    pub(crate) likes: bool,
    /// Whether counters are reset.
    pub(crate) resets: bool,
    /// Events a second that make a counter hot.
    pub(crate) slot_rate: u64,
    /// Whether events have ids, and for how long those are remembered.
    pub(crate) ids: bool,
    pub(crate) retry_window: RetryWindow,
    /// Whether one request brings totals to the edge of 64 bits.
    pub(crate) overflows: bool,
}

impl Plan {
    /// The plan of a run.
    pub(crate) fn new(dice: &Dice) -> Self {
        let in_group = (0..dice.between(1, 3)).map(|_| dice.chance(700)).collect();
        let rough = dice.chance(800);
        let weather = if rough {
            Weather {
                lost: *dice.pick(&[0, 5, 30, 100]),
                late: *dice.pick(&[0, 20, 100]),
                late_ms: *dice.pick(&[100, 1_000, 5_000]),
                latency_ms: *dice.pick(&[2, 10, 40]),
            }
        } else {
            Weather::FAIR
        };
        let glitch = || *dice.pick(&[0, 0, 20, 100]);
        let glitches = Glitches { again: glitch(), skipped: glitch(), stale: glitch() * 4 };
        let active = dice.millis(1_500, 4_000);
        let (faults, replaced) = faults(dice, active);
        Plan {
            partitions: u32::try_from(dice.between(1, 3)).unwrap_or(1),
            in_group,
            flush_ms: *dice.pick(&[40, 100, 200]),
            weather,
            glitches,
            holes: *dice.pick(&[0, 0, 50]),
            requests: (0..dice.between(1, 3)).map(|_| dice.between(3, 25)).collect(),
            active: active + if replaced { Duration::from_secs(10) } else { Duration::ZERO },
            faults,
            likes: !replaced && dice.chance(700),
            resets: !replaced && dice.chance(500),
            slot_rate: *dice.pick(&[2, 10, 10_000]),
            ids: !replaced && dice.chance(600),
            retry_window: RetryWindow {
                ids: *dice.pick(&[2, 5, 20, LARGE_WINDOW.ids]),
                span_ms: *dice.pick(&[300, 1_500, LARGE_WINDOW.span_ms]),
            },
            overflows: dice.chance(150) && !replaced,
        }
    }

    /// What one aggregator may hold in memory: little, so that rows are evicted and loaded again.
    pub(crate) fn limits(&self, dice: &Dice) -> EngineLimits {
        let small = |least: u64, most: u64| usize::try_from(dice.between(least, most)).unwrap_or(1);
        EngineLimits {
            counters: small(1, 8),
            pending_events: small(1, 40),
            dead_letter_bytes: small(1, 2_000),
        }
    }
}

/// Faults at random times, and whether the log is replaced.
fn faults(dice: &Dice, active: Duration) -> (Vec<(Duration, Fault)>, bool) {
    let kinds: Vec<u64> = (0..dice.between(0, 4)).map(|_| dice.below(11)).collect();
    let end = u64::try_from(active.as_millis()).unwrap_or(0);
    let mut faults = Vec::new();
    for kind in kinds {
        for _ in 0..dice.between(1, 4) {
            faults.push((dice.millis(0, end), fault(dice, kind)));
        }
    }
    let replaced = dice.chance(60);
    if replaced {
        faults.push((dice.millis(end / 2, end), Fault::Replace));
    }
    faults.sort_by_key(|(at, _)| *at);
    (faults, replaced)
}

fn fault(dice: &Dice, kind: u64) -> Fault {
    let replica = usize::try_from(dice.below(3)).unwrap_or(0);
    match kind {
        0 | 1 => Fault::Crash,
        2 => Fault::Stop,
        3 => Fault::Freeze(dice.millis(50, 3_000)),
        4 => Fault::Cut(dice.millis(50, 2_000)),
        5 => Fault::CrashIngest,
        6 => Fault::Rebalance,
        7 => Fault::Down(replica, dice.millis(50, 3_000)),
        8 if dice.chance(300) => Fault::Blackout,
        8 => Fault::PowerCut(replica),
        9 => Fault::Outage(dice.millis(50, 2_000)),
        _ => Fault::Retain,
    }
}
