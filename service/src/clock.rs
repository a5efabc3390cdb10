//! Time. The only place that asks the machine for it, so that everything else can be simulated.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970, as people and the log count them.
    fn unix_ms(&self) -> i64;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// A clock that is handed around.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn shared() -> SharedClock {
        Arc::new(SystemClock { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn unix_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(unix_ms: i64) -> Arc<Self> {
        Arc::new(ManualClock(unix_ms.into()))
    }

    /// Moves it on.
    pub fn advance(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn unix_ms(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.unix_ms()).unwrap_or(0))
    }
}

/// Waits without holding a thread.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits and holds the thread; for threads of our own only.
pub fn sleep_blocking(duration: Duration) {
    std::thread::sleep(duration);
}

/// The limit ran out before the future was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct TimedOut;

/// The future's value, unless the limit runs out first.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, TimedOut> {
    tokio::time::timeout(limit, future).await.map_err(|_| TimedOut)
}

/// Ticks at a fixed interval; a late tick delays the next one rather than hurrying it.
pub fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval
}
