//! The accumulator of a partition: pure. Events in, records out, each with who waits for it.

use std::collections::VecDeque;

use bytes::Bytes;
use tally_proto::{BatchBuilder, Event};

/// Gathers events into records, in order. It never waits for time: who drives it takes a record
/// as soon as nothing of the partition is in flight, and until then events gather.
#[derive(Debug)]
pub struct Accumulator<W> {
    open: VecDeque<Open<W>>,
}

#[derive(Debug)]
struct Open<W> {
    builder: BatchBuilder,
    waiting: Vec<W>,
}

/// A record to append.
#[derive(Debug)]
pub struct Ready<W> {
    /// The packed events.
    pub value: Bytes,
    /// How many they are.
    pub events: u64,
    /// Who waits for it.
    pub waiting: Vec<W>,
}

impl<W> Default for Accumulator<W> {
    fn default() -> Self {
        Accumulator { open: VecDeque::new() }
    }
}

impl<W> Accumulator<W> {
    /// Whether there is nothing to append.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds the events of one request, and one who waits for each record that they go into;
    /// `waiter` is told how many events of the request the record holds.
    pub fn push<'e>(
        &mut self,
        events: impl IntoIterator<Item = Event<'e>>,
        mut waiter: impl FnMut(usize) -> W,
    ) {
        let mut held = 0;
        for event in events {
            if self.open.back_mut().is_none_or(|open| open.builder.try_push(&event).is_err()) {
                self.wait(&mut held, &mut waiter);
                let mut builder = BatchBuilder::default();
                builder.try_push(&event).expect("an empty record takes any event");
                self.open.push_back(Open { builder, waiting: Vec::new() });
            }
            held += 1;
        }
        self.wait(&mut held, &mut waiter);
    }

    /// The newest record holds events of the request: it waits for that record.
    fn wait(&mut self, held: &mut usize, waiter: &mut impl FnMut(usize) -> W) {
        if let Some(open) = self.open.back_mut().filter(|_| *held > 0) {
            open.waiting.push(waiter(std::mem::take(held)));
        }
    }

    /// The oldest record.
    pub fn flush(&mut self) -> Option<Ready<W>> {
        let open = self.open.pop_front()?;
        let events = open.builder.events();
        Some(Ready { value: open.builder.finish(), events, waiting: open.waiting })
    }
}

#[cfg(test)]
mod tests {
    use tally_proto::{Action, EventBatch, Kind, Kinds};

    use super::*;

    fn views<'e>(kind: &'e Kind, subjects: &'e [String]) -> impl Iterator<Item = Event<'e>> {
        subjects.iter().map(move |subject| Event {
            namespace: "default",
            kind,
            subject,
            action: Action::Add(1),
            actor: None,
            id: None,
        })
    }

    #[test]
    fn what_gathers_goes_out_as_one_record() {
        let kinds = Kinds::built_in();
        let kind = kinds.get("view").unwrap();
        let mut accumulator = Accumulator::default();
        let subjects = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        accumulator.push(views(kind, &subjects), |events| ("first", events));
        accumulator.push(views(kind, &subjects[..1]), |events| ("second", events));
        let ready = accumulator.flush().unwrap();
        assert_eq!(ready.waiting, [("first", 3), ("second", 1)]);
        assert_eq!(ready.events, 4);
        let batch = EventBatch::decode(ready.value).unwrap();
        let entries: Vec<_> = batch.entries().map(|e| (e.subject.to_owned(), e.delta)).collect();
        assert_eq!(entries, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
        assert!(accumulator.is_empty() && accumulator.flush().is_none());
    }

    #[test]
    fn a_request_larger_than_a_record_waits_for_each_of_its_records() {
        let kinds = Kinds::built_in();
        let kind = kinds.get("view").unwrap();
        let subjects: Vec<String> = (0..30_000).map(|n| format!("subject-number-{n}")).collect();
        let mut accumulator = Accumulator::default();
        accumulator.push(views(kind, &subjects), |events| events);
        let mut events = 0;
        let mut records = 0;
        while let Some(ready) = accumulator.flush() {
            assert_eq!(ready.waiting.len(), 1);
            assert_eq!(ready.waiting[0] as u64, ready.events);
            events += ready.waiting[0];
            records += 1;
        }
        assert_eq!(events, subjects.len());
        assert!(records > 1);
    }
}
