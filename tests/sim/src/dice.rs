//! Chance, all of it from one seed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A source of chance. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    /// The dice of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Dice(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A number below `n`; 0 if there is none.
    pub(crate) fn below(&self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.lock().random_range(0..n) }
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn chance(&self, in_thousand: u64) -> bool {
        in_thousand > 0 && self.below(1_000) < in_thousand
    }

    /// A time between two numbers of milliseconds.
    pub(crate) fn millis(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64);
        &of[usize::try_from(at).unwrap_or(0)]
    }
}
