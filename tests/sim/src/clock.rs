//! Simulated time: it passes when nothing is left to do.

use std::sync::Arc;
use std::time::Duration;

use tally_service::clock::{Clock, SharedClock};
use tokio::time::Instant;

/// Where simulated time begins, in milliseconds since 1970: half a minute before a day ends.
const BEGIN_MS: i64 = 1_795_219_200_000 - 4_000;

/// The clock that all processes of a world share.
#[derive(Debug)]
pub(crate) struct SimClock(Instant);

impl SimClock {
    /// A clock that begins now. Must be made within a runtime.
    pub(crate) fn shared() -> SharedClock {
        Arc::new(SimClock(Instant::now()))
    }
}

impl Clock for SimClock {
    fn unix_ms(&self) -> i64 {
        BEGIN_MS + i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}
