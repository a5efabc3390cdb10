//! The batch: events of one request, each with who waits for it. Pure.
//!
//! A batch never changes once it is made: it is sent again with the same ids.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::driver::SendError;
use crate::event::Event;

/// The largest magnitude of a delta.
const MAX_DELTA: i64 = (1 << 53) - 1;

pub(crate) type Done = oneshot::Sender<Result<(), SendError>>;

/// Events to be sent as they are.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<Line>,
}

/// One event to be sent, and those who wait for it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) event: Event,
    pub(crate) waiting: Vec<Done>,
}

impl Batch {
    /// A batch of these events; `new_id` names those that have no id of their own.
    pub(crate) fn new(
        events: Vec<(Event, Done)>,
        combine: bool,
        mut new_id: impl FnMut() -> String,
    ) -> Self {
        let mut lines: Vec<Line> = Vec::with_capacity(events.len());
        let mut sums: HashMap<(Option<String>, String, String), usize> = HashMap::new();
        for (event, done) in events {
            let is_plain = event.id.is_none() && event.actor.is_none();
            let counter = (event.namespace.clone(), event.kind.clone(), event.subject.clone());
            let sum = sums.get(&counter).filter(|_| combine && is_plain);
            if let Some(line) = sum.and_then(|at| lines.get_mut(*at))
                && let Some(delta) = sum_of(line.event.delta, event.delta)
            {
                line.event.delta = Some(delta);
                line.waiting.push(done);
                continue;
            }
            if combine && is_plain {
                sums.insert(counter, lines.len());
            }
            lines.push(Line { event, waiting: vec![done] });
        }
        for line in &mut lines {
            line.event.id.get_or_insert_with(&mut new_id);
        }
        Batch { lines }
    }

    /// The body of the request.
    pub(crate) fn body(&self) -> String {
        let line = |line: &Line| serde_json::to_string(&line.event).unwrap_or_default() + "\n";
        self.lines.iter().map(line).collect()
    }

    /// Tells everybody what became of their events.
    pub(crate) fn settle(self, outcome: impl Fn(usize) -> Result<(), SendError>) {
        for (index, line) in self.lines.into_iter().enumerate() {
            for done in line.waiting {
                done.send(outcome(index)).ok(); // who dropped the receipt does not ask
            }
        }
    }
}

/// The sum of two deltas, if the server takes it as one.
fn sum_of(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    let sum = a?.checked_add(b?)?;
    (sum != 0 && sum.abs() <= MAX_DELTA).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(events: Vec<Event>, combine: bool) -> Vec<(Option<i64>, Option<String>, usize)> {
        let events = events.into_iter().map(|event| (event, oneshot::channel().0)).collect();
        let mut next = 0;
        let new_id = || {
            next += 1;
            format!("id-{next}")
        };
        let lines = Batch::new(events, combine, new_id).lines;
        lines.into_iter().map(|l| (l.event.delta, l.event.id, l.waiting.len())).collect()
    }

    #[test]
    fn plain_deltas_on_one_counter_are_one_event_with_one_id() {
        let view = || Event::add("view", "a");
        let events = vec![
            view(),
            view().delta(5),
            view().namespace("eu"),
            view().id("own"),
            Event::set("like", "a", "user:9"),
            view().delta(-6), // the sum would be 0, which nobody may send
            view(),
        ];
        let id = |id: &str| Some(id.to_owned());
        let expected = vec![
            (Some(6), id("id-1"), 2),
            (Some(1), id("id-2"), 1),
            (Some(1), id("own"), 1),
            (None, id("id-3"), 1),
            (Some(-5), id("id-4"), 2),
        ];
        assert_eq!(batch(events, true), expected);
        assert_eq!(batch(vec![view(), view()], false).len(), 2);
    }

    #[test]
    fn a_sum_that_is_too_large_is_two_events() {
        let huge = || Event::add("view", "a").delta(MAX_DELTA);
        assert_eq!(batch(vec![huge(), huge()], true).len(), 2);
    }
}
