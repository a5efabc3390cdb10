//! The room for events that wait for the log: load is shed here, never in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many events may wait at once.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    free: Arc<AtomicUsize>,
}

/// Room for some events; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    events: usize,
    budget: Budget,
}

impl Budget {
    pub(crate) fn new(events: usize) -> Self {
        Budget { free: Arc::new(AtomicUsize::new(events)) }
    }

    /// Room for all of `events`, or none at all.
    pub(crate) fn reserve(&self, events: usize) -> Option<Room> {
        let take = |free: usize| free.checked_sub(events);
        self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Room { events, budget: self.clone() })
    }

    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Acquire)
    }
}

impl Room {
    /// Takes a part of the room off.
    pub(crate) fn split(&mut self, events: usize) -> Room {
        let events = events.min(self.events);
        self.events -= events;
        Room { events, budget: self.budget.clone() }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.free.fetch_add(self.events, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_once_and_taken_whole_or_not_at_all() {
        let budget = Budget::new(10);
        let mut room = budget.reserve(7).unwrap();
        assert!(budget.reserve(4).is_none());
        let part = room.split(5);
        drop(room);
        assert_eq!(budget.free(), 5);
        drop(part);
        assert_eq!(budget.free(), 10);
    }
}
