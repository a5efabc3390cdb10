//! A simulated process: what it asks of others goes through its network, and it may be frozen.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::dice::Dice;

/// How badly the network behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Requests, and answers, that are lost, of a thousand.
    pub(crate) lost: u64,
    /// Messages that take long, of a thousand.
    pub(crate) late: u64,
    /// How long those take at most, in milliseconds.
    pub(crate) late_ms: u64,
    /// How long others take at most, in milliseconds.
    pub(crate) latency_ms: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub(crate) const FAIR: Weather = Weather { lost: 0, late: 0, late_ms: 0, latency_ms: 2 };
}

/// A process as the network sees it. Clones share it.
#[derive(Clone)]
pub(crate) struct Process {
    name: Arc<str>,
    dice: Dice,
    weather: Arc<Mutex<Weather>>,
    state: Arc<Mutex<State>>,
    healed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    frozen_until: Instant,
    cut_until: Instant,
}

/// A message that never arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

impl Process {
    /// A process in the weather of its world.
    pub(crate) fn new(name: &str, dice: Dice, weather: Arc<Mutex<Weather>>) -> Self {
        let state = State { frozen_until: Instant::now(), cut_until: Instant::now() };
        let (name, state) = (name.into(), Arc::new(Mutex::new(state)));
        Process { name, dice, weather, state, healed: Arc::default() }
    }

    /// Who it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Stops the process for a time, as SIGSTOP does; what it had sent is on its way all the same.
    pub(crate) fn freeze(&self, time: Duration) {
        self.state.lock().frozen_until = Instant::now() + time;
    }

    /// Cuts it off from log and store for a time.
    pub(crate) fn cut(&self, time: Duration) {
        self.state.lock().cut_until = Instant::now() + time;
    }

    /// Ends freeze and cut.
    pub(crate) fn heal(&self) {
        *self.state.lock() = State { frozen_until: Instant::now(), cut_until: Instant::now() };
        self.healed.notify_waiters();
    }

    /// Whether it does nothing at present.
    pub(crate) fn is_frozen(&self) -> bool {
        self.state.lock().frozen_until > Instant::now()
    }

    /// Whether nothing gets through at present.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().cut_until > Instant::now()
    }

    /// Waits while it is frozen.
    pub(crate) async fn awake(&self) {
        loop {
            let until = self.state.lock().frozen_until;
            if until <= Instant::now() {
                return;
            }
            timeout_at(until, self.healed.notified()).await.ok();
        }
    }

    /// How long one message takes; whether it arrives at all.
    pub(crate) fn message(&self) -> Result<Duration, Lost> {
        let weather = *self.weather.lock();
        if self.is_cut() || self.dice.chance(weather.lost) {
            return Err(Lost);
        }
        Ok(if self.dice.chance(weather.late) {
            self.dice.millis(0, weather.late_ms)
        } else {
            self.dice.millis(0, weather.latency_ms)
        })
    }

    /// Sends one message and waits for its arrival.
    pub(crate) async fn travel(&self) -> Result<(), Lost> {
        sleep(self.message()?).await;
        Ok(())
    }
}
