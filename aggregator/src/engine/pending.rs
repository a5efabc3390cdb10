//! Events that wait for the base of their counter, and the bases that are still to be asked for.

use std::collections::HashMap;

use tally_proto::{AsOf, Offset};

use super::rows::RowNumber;

/// One event that waits. Whether it counts is known only when the base's as-of is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) offset: Offset,
    pub(super) index: u32,
    pub(super) change: Change,
    pub(super) append_time_ms: i64,
}

/// What an event does to a sum.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Add(i64),
    /// It begins anew, in this generation.
    Reset(u64),
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: HashMap<RowNumber, Vec<Waiting>, foldhash::fast::FixedState>,
    events: usize,
    wanted: Vec<RowNumber>,
}

impl Pending {
    /// How many events wait.
    pub(super) fn events(&self) -> usize {
        self.events
    }

    /// The row's base is to be loaded, whoever waits for it.
    pub(super) fn want(&mut self, row: RowNumber) {
        self.waiting.entry(row).or_default();
        self.wanted.push(row);
    }

    /// An event waits for its row; the first one asks for the base.
    pub(super) fn wait(&mut self, row: RowNumber, event: Waiting) {
        let events = self.waiting.entry(row).or_insert_with(|| {
            self.wanted.push(row);
            Vec::with_capacity(1)
        });
        events.push(event);
        self.events = self.events.saturating_add(1);
    }

    /// At most `most` rows whose base is to be loaded, each named once.
    pub(super) fn take_wanted(&mut self, most: usize) -> Vec<RowNumber> {
        self.wanted.drain(..most.min(self.wanted.len())).collect()
    }

    /// What waited for the row, in order.
    pub(super) fn take(&mut self, row: RowNumber) -> Option<Vec<Waiting>> {
        let events = self.waiting.remove(&row)?;
        self.events = self.events.saturating_sub(events.len());
        Some(events)
    }

    /// No checkpoint may pass it: the oldest event that waits.
    pub(super) fn oldest(&self) -> Option<AsOf> {
        let first = |events: &Vec<Waiting>| events.first().map(|event| AsOf(event.offset.0));
        self.waiting.values().filter_map(first).min()
    }
}
