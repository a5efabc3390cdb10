//! Retries as an iterator of waits: exponential, with jitter from an injected source.

use std::time::Duration;

use rand::{Rng, RngExt};

/// The waits between tries. Endless: the caller takes as many as its budget allows.
#[derive(Debug)]
pub struct Backoff<R> {
    next: Duration,
    most: Duration,
    rng: R,
}

impl<R: Rng> Backoff<R> {
    /// Waits that begin at `first` and double up to `most`.
    pub fn new(first: Duration, most: Duration, rng: R) -> Self {
        Backoff { next: first, most, rng }
    }
}

impl<R: Rng> Iterator for Backoff<R> {
    type Item = Duration;

    /// Between half and the whole of the present step, so that a crowd spreads out.
    fn next(&mut self) -> Option<Duration> {
        let step = self.next;
        self.next = step.saturating_mul(2).min(self.most);
        Some(step.mul_f64(self.rng.random_range(0.5..=1.0)))
    }
}

/// A backoff with the process's own randomness.
pub fn backoff(first: Duration, most: Duration) -> Backoff<rand::rngs::StdRng> {
    Backoff::new(first, most, source())
}

#[cfg(not(feature = "simulation"))]
fn source() -> rand::rngs::StdRng {
    rand::make_rng()
}

/// The same run must be the same again.
#[cfg(feature = "simulation")]
fn source() -> rand::rngs::StdRng {
    rand::SeedableRng::seed_from_u64(0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_never_pass_it() {
        let rng = rand::rngs::StdRng::seed_from_u64(1);
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(5));
        let waits: Vec<_> = Backoff::new(first, most, rng).take(20).collect();
        assert!(waits[0] >= first / 2 && waits[0] <= first);
        assert!(waits.iter().all(|wait| *wait <= most));
        assert!(waits[19] >= most / 2);
    }
}
