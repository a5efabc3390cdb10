//! Since when a partition is caught up: a statement about time, and so never part of a fact.

use std::collections::VecDeque;

use tally_proto::{AsOf, Offset};
use tally_service::mutant;

/// Observations kept while a partition is behind; more would only say the same later.
const MOST_OBSERVATIONS: usize = 64;

/// Turns "at time t the log ended at e" and "everything below a is durable" into "everything
/// appended before t is durable".
#[derive(Debug, Default)]
pub(crate) struct CaughtUp {
    /// When the log was asked, and the end that it named; rising.
    observed: VecDeque<(i64, Offset)>,
    /// An observed end that stands for an earlier one: what lies between are no records (the
    /// markers of a foreign transaction).
    same_end: Option<(Offset, Offset)>,
    at_ms: i64,
}

impl CaughtUp {
    /// The log, asked at `at_ms` or later, ended at `end`.
    pub(crate) fn observe(&mut self, at_ms: i64, end: Offset) {
        if self.observed.len() < MOST_OBSERVATIONS {
            self.observed.push_back((at_ms, end));
        }
    }

    /// The end that was observed last, and before: no record came in between.
    pub(crate) fn stands_at(&self, end: Offset) -> bool {
        self.observed.iter().rev().take(2).filter(|(_, observed)| *observed == end).count() == 2
    }

    /// What lies between `next` and the observed `end` are no records.
    pub(crate) fn tail_is_empty(&mut self, end: Offset, next: AsOf) {
        self.same_end = Some((end, next.next()));
    }

    /// Everything below `durable` is durable, the last of it appended at `append_time_ms`.
    pub(crate) fn advance(&mut self, durable: AsOf, append_time_ms: Option<i64>) {
        // Append times do not go back: what was appended earlier lies before it.
        self.at_ms = self.at_ms.max(append_time_ms.unwrap_or(0));
        while let Some((at_ms, end)) = self.observed.front().copied() {
            let end = match self.same_end {
                Some((observed, really)) if observed == end => really,
                _ => end,
            };
            if durable.next() < end && !mutant!("caught-up-unseen") {
                break;
            }
            self.at_ms = self.at_ms.max(at_ms);
            self.observed.pop_front();
        }
    }

    /// Everything appended before it is durable; 0: nothing is known.
    pub(crate) fn at_ms(&self) -> i64 {
        self.at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_caught_up_when_what_was_there_is_durable() {
        let mut caught_up = CaughtUp::default();
        caught_up.observe(100, Offset(5));
        caught_up.observe(200, Offset(9));
        caught_up.advance(AsOf(4), Some(50));
        assert_eq!(caught_up.at_ms(), 50);
        caught_up.advance(AsOf(6), Some(60));
        assert_eq!(caught_up.at_ms(), 100);
        caught_up.advance(AsOf(9), Some(70));
        assert_eq!(caught_up.at_ms(), 200);
        caught_up.observe(300, Offset(9));
        caught_up.advance(AsOf(9), None);
        assert_eq!(caught_up.at_ms(), 300, "an idle partition stays caught up");
    }

    #[test]
    fn markers_at_the_end_do_not_hold_it_back() {
        let mut caught_up = CaughtUp::default();
        caught_up.observe(100, Offset(7)); // 6 is a marker: no record, and none will come
        caught_up.advance(AsOf(6), None);
        assert!(caught_up.at_ms() == 0 && !caught_up.stands_at(Offset(7)));
        caught_up.observe(150, Offset(7));
        assert!(caught_up.stands_at(Offset(7)), "so the tail is looked at");
        caught_up.tail_is_empty(Offset(7), AsOf(6));
        caught_up.advance(AsOf(6), None);
        assert_eq!(caught_up.at_ms(), 150);
        caught_up.observe(200, Offset(8));
        caught_up.advance(AsOf(6), None);
        assert_eq!(caught_up.at_ms(), 150, "another end is another matter");
    }
}
