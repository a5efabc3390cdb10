//! The search: many seeds on all cores, until one is wrong or all were right.

use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::world::run;

/// A seed, and what was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub wrong: String,
}

/// What a search saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    /// Seeds that were run.
    pub seeds: u64,
    /// Writes that were judged.
    pub writes: u64,
    /// What was wrong, by seed; only the first of each worker if it stops there.
    pub findings: Vec<Finding>,
}

/// Runs seeds on all cores; `each` is told of every one. Stops at the first that is wrong if asked.
pub fn search(
    seeds: Range<u64>,
    mutant: Option<&'static str>,
    stop: bool,
    each: impl Fn() + Sync,
) -> Searched {
    let (next, ran, writes) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let (over, findings) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, mutant)));
            ran.fetch_add(1, Ordering::Relaxed);
            let wrong = match outcome {
                Ok(outcome) => {
                    writes.fetch_add(outcome.writes, Ordering::Relaxed);
                    outcome.wrong
                }
                Err(_) => Some("it panicked".to_owned()),
            };
            if let Some(wrong) = wrong {
                findings.lock().push(Finding { seed, wrong });
                over.fetch_or(stop, Ordering::Relaxed);
            }
            each();
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let mut findings = findings.into_inner();
    findings.sort_by_key(|finding: &Finding| finding.seed);
    Searched { seeds: ran.into_inner(), writes: writes.into_inner(), findings }
}
