//! The retry window: the newest ids of the partition, counted or not. An event whose id is among
//! them is a repeat.
//!
//! Invariant: what it holds follows from the records from [`Window::begins`] on, and from nothing
//! else: a fold that reads those again takes the same events for repeats.

use std::collections::VecDeque;

use hashbrown::HashTable;
use tally_proto::{AsOf, Offset, RetryWindow};
use tally_service::mutant;

/// One id that occurred. 32 bytes.
#[derive(Debug, Clone, Copy)]
struct Occurrence {
    hash: u128,
    offset: Offset,
    append_time_ms: i64,
}

/// The newest ids.
#[derive(Debug)]
pub(super) struct Window {
    settings: RetryWindow,
    /// Oldest first.
    ring: VecDeque<Occurrence>,
    /// How many left the ring: the number of an occurrence less this is its place.
    gone: u64,
    /// The newest occurrence of each id, by number.
    newest: HashTable<u64>,
}

impl Window {
    pub(super) fn new(settings: RetryWindow) -> Self {
        Window { settings, ring: VecDeque::new(), gone: 0, newest: HashTable::new() }
    }

    /// An id occurs; says whether it is a repeat.
    pub(super) fn occurs(&mut self, hash: u128, offset: Offset, append_time_ms: i64) -> bool {
        if mutant!("window-grows") {
            self.settings.ids = usize::MAX;
        }
        let (ring, gone) = (&self.ring, self.gone);
        let is_it = |number: &u64| at(ring, gone, *number).is_some_and(|o| o.hash == hash);
        let before = self.newest.find_mut(short(hash), is_it);
        let number = gone.saturating_add(ring.len() as u64);
        let is_repeat = match before {
            None => {
                let rehash = |number: &u64| at(ring, gone, *number).map_or(0, |o| short(o.hash));
                self.newest.insert_unique(short(hash), number, rehash);
                false
            }
            Some(before) => {
                let earlier = at(ring, gone, *before).map_or(i64::MIN, |o| o.append_time_ms);
                let apart = append_time_ms.saturating_sub(earlier);
                let is_repeat = apart <= self.settings.span_ms || mutant!("window-without-span");
                if is_repeat && mutant!("window-of-counted") {
                    return true;
                }
                *before = number;
                is_repeat
            }
        };
        if self.ring.len() >= self.settings.ids {
            self.forget_oldest(); // before, so that the ring never grows past a full window
        }
        self.ring.push_back(Occurrence { hash, offset, append_time_ms });
        is_repeat
    }

    /// A record was appended at this time: forgets what is so old that the log need not keep it.
    pub(super) fn pass(&mut self, now_ms: i64) {
        let kept_ms = self.settings.least_retention_ms();
        let is_old = |oldest: &Occurrence| now_ms.saturating_sub(oldest.append_time_ms) > kept_ms;
        while self.ring.front().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let gone = self.gone;
        let Some(oldest) = self.ring.pop_front() else { return };
        let is_it = |number: &u64| *number == gone;
        if let Ok(entry) = self.newest.find_entry(short(oldest.hash), is_it) {
            entry.remove();
        }
        self.gone = gone.saturating_add(1);
    }

    /// Where the ids begin that are remembered; `next` if none are.
    pub(super) fn begins(&self, next: AsOf) -> AsOf {
        if mutant!("window-is-lost") {
            return next;
        }
        self.ring.front().map_or(next, |oldest| AsOf(oldest.offset.0))
    }
}

fn at(ring: &VecDeque<Occurrence>, gone: u64, number: u64) -> Option<&Occurrence> {
    ring.get(usize::try_from(number.checked_sub(gone)?).ok()?)
}

/// Any 64 of the bits are as good as a hash.
#[allow(clippy::cast_possible_truncation)]
fn short(hash: u128) -> u64 {
    hash as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn window(ids: usize) -> Window {
        Window::new(RetryWindow { ids, span_ms: HOUR })
    }

    #[test]
    fn an_id_is_a_repeat_while_it_is_among_the_newest() {
        let mut window = window(2);
        let mut occurs = |hash, offset| window.occurs(hash, Offset(offset), 0);
        assert!(!occurs(1, 0));
        assert!(!occurs(2, 1));
        assert!(occurs(1, 2), "which makes it the newest again");
        assert!(!occurs(3, 3));
        assert!(occurs(1, 4));
        assert!(!occurs(2, 5), "two others came since");
        assert_eq!(window.begins(AsOf(6)), AsOf(4));
    }

    #[test]
    fn ids_too_far_apart_in_time_never_match() {
        let mut window = window(10);
        assert!(!window.occurs(1, Offset(0), 0));
        assert!(window.occurs(1, Offset(1), HOUR));
        assert!(!window.occurs(1, Offset(2), 2 * HOUR + 1));
        window.pass(2 * HOUR + 1);
        assert_eq!(window.begins(AsOf(3)), AsOf(1));
        assert!(!window.occurs(2, Offset(3), 9 * HOUR));
        window.pass(9 * HOUR);
        assert_eq!(window.begins(AsOf(4)), AsOf(3), "what the log need not keep is forgotten");
    }

    #[test]
    fn an_empty_window_begins_where_the_fold_stands() {
        assert_eq!(window(10).begins(AsOf(7)), AsOf(7));
    }

    #[test]
    fn a_window_that_was_read_again_is_the_same() {
        let mut living = window(5);
        let records: Vec<(u64, u128, i64)> = (0..200u64)
            .map(|n| (n / 3, u128::from(n * 7 % 11), i64::try_from(n).unwrap() * HOUR / 9))
            .collect();
        let mut from = Vec::new();
        for (offset, hash, ms) in &records {
            living.occurs(*hash, Offset(*offset), *ms);
            living.pass(*ms);
            from.push(living.begins(AsOf(offset + 1)));
        }
        for (restart, begins) in from.iter().enumerate() {
            // Only at the edge of a record.
            if records.get(restart + 1).is_some_and(|next| next.0 == records[restart].0) {
                continue;
            }
            let (mut again, mut living) = (window(5), window(5));
            for (at, (offset, hash, ms)) in records.iter().enumerate() {
                let is_repeat = living.occurs(*hash, Offset(*offset), *ms);
                living.pass(*ms);
                again.pass(*ms);
                if begins.next().0 <= *offset {
                    let so = again.occurs(*hash, Offset(*offset), *ms);
                    assert!(at <= restart || so == is_repeat, "record {at} after {restart}");
                }
            }
        }
    }
}
