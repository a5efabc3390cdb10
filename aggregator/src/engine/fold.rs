//! The fold: records in, rows and dead letters changed.

use bytes::Bytes;
use tally_log::Record;
use tally_proto::{
    Action, CounterId, Decoded, Entry, Event, EventBatch, EventError, Kinds, Mode, Offset,
    RawEvent, RecordError, Scope, SubjectId, decode_record,
};
use tally_service::mutant;
use tally_store::DeadLetter;

use super::pending::{Change, Waiting};
use super::repeats::{Refusal, event_of, event_of_act};
use super::rows::{Added, Row, RowNumber};
use super::{Engine, Mark, Stop, scopes};

/// Most places kept where a checkpoint could stand.
const MOST_MARKS: usize = 1_024;

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// All of it that was not folded before.
    All,
    /// Records are missing from `expected` on: ask the log which one stands next, tell
    /// [`Engine::skip_hole`], and deliver from there once more.
    Hole {
        /// The offset to ask for.
        expected: Offset,
    },
}

/// Where an event stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) record: &'a Record,
    index: u32,
}

impl<'a> Place<'a> {
    /// A record as a whole, or the only event in it.
    pub(super) fn whole(record: &'a Record) -> Self {
        Place { record, index: 0 }
    }
}

impl Engine {
    /// Folds records in their order; those below the expected offset are left out.
    pub fn fold(&mut self, records: &[Record]) -> Result<Folded, Stop> {
        let kinds = self.kinds.clone();
        let mut last = None;
        let mut outcome = Ok(Folded::All);
        for record in records {
            let expected = self.next.next();
            if record.offset < expected && !mutant!("replay-counts-again") {
                continue;
            }
            let is_hole =
                self.hole.is_some_and(|(from, next)| from == expected && record.offset <= next);
            if record.offset > expected && !is_hole && !mutant!("skip-gaps") {
                if mutant!("hole-heard-twice") {
                    self.hole = Some((expected, record.offset));
                }
                outcome = Ok(Folded::Hole { expected });
                break;
            }
            if self.is_refilling() {
                self.remember(&kinds, record);
            } else {
                let applied = self.apply(&kinds, record);
                self.settle();
                if let Err(stop) = applied {
                    outcome = Err(stop);
                    break;
                }
                last = Some(record);
            }
            self.window.pass(record.append_time_ms);
            self.hole = None;
            self.next = record.offset.as_of();
        }
        if let Some(record) = last {
            self.mark(record);
        }
        self.make_room();
        outcome
    }

    /// The log says that no record stands between `expected` and `next`: there is nothing to be had.
    pub fn skip_hole(&mut self, expected: Offset, next: Offset) {
        if !mutant!("hole-heard-twice") {
            self.hole = Some((expected, next));
        }
    }

    /// Notes that a checkpoint could stand after this record.
    fn mark(&mut self, record: &Record) {
        let last = record.fingerprint();
        self.last = Some(last);
        self.marks.push_back(Mark { last, window_from: self.window.begins(self.next) });
        if self.marks.len() > MOST_MARKS {
            self.marks.remove(MOST_MARKS / 2); // any but the newest may go: a coarser choice
        }
    }

    /// Evicts clean rows while there are too many. A fold that is paused because memory is full
    /// must find room without folding, so every flush comes here too.
    pub(super) fn make_room(&mut self) {
        self.sets.evict(self.limits.counters);
        if self.rows.len() <= self.limits.counters {
            return;
        }
        for (number, scope) in self.rows.evict(self.limits.counters) {
            self.sets.remove(number);
            self.scopes.release(scope);
        }
    }

    fn apply(&mut self, kinds: &Kinds, record: &Record) -> Result<(), Stop> {
        let place = Place::whole(record);
        match decode_record(record.content_type, &record.value) {
            Ok(Decoded::Batch(batch)) => self.apply_batch(kinds, record, &batch),
            Ok(Decoded::Reset(reset)) => self.reset(kinds, record, reset),
            Ok(Decoded::One(event)) => self.apply_json(kinds, place, &event, &record.value),
            Ok(Decoded::Array(items)) => {
                for (index, item) in (0u32..).zip(items) {
                    let value = Bytes::copy_from_slice(item.get().as_bytes());
                    let place = Place { record, index };
                    self.apply_json(kinds, place, &RawEvent::parse(item.get()), &value);
                }
            }
            Err(RecordError::UnknownContentType) => return Err(Stop::NewerRecord(record.offset)),
            Err(error) => {
                self.set_aside(place, error.code(), &error.to_string(), record.value.clone());
            }
        }
        Ok(())
    }

    fn apply_batch(&mut self, kinds: &Kinds, record: &Record, batch: &EventBatch) {
        let scopes: Vec<_> = batch.scopes().collect();
        // The scopes of a record are few, and looked up once for all of its plain deltas.
        let numbers: Vec<_> = (0..scopes.len())
            .map(|at| {
                let (scope, kind) = scopes::declared(kinds, &scopes, at, Mode::Tally).ok()?;
                Some(self.scopes.number(scope.namespace, &kind.name))
            })
            .collect();
        for (index, entry) in (0u32..).zip(batch.entries()) {
            let place = Place { record, index };
            match numbers.get(entry.scope) {
                Some(Some(scope)) if entry.id.is_none() => {
                    self.add(place, *scope, entry.subject, entry.delta);
                }
                _ => {
                    let value = || scopes.get(entry.scope).map(|scope| scope.json_of(&entry));
                    self.take(place, event_of(kinds, &scopes, &entry), value);
                }
            }
        }
        let entries = u32::try_from(batch.entries().len()).unwrap_or(u32::MAX);
        for (index, act) in (entries..).zip(batch.acts()) {
            let value = || scopes.get(act.scope).map(|scope| scope.json_of_act(&act));
            self.take(Place { record, index }, event_of_act(kinds, &scopes, &act), value);
        }
    }

    fn apply_json(
        &mut self,
        kinds: &Kinds,
        place: Place<'_>,
        event: &Result<RawEvent<'_>, EventError>,
        value: &Bytes,
    ) {
        let checked = match event {
            Ok(raw) => raw.check(kinds),
            Err(error) => Err(error.clone()),
        };
        let checked = checked.map_err(|error| (error.code(), error.to_string()));
        self.take(place, checked, || Some(value.clone()));
    }

    /// Counts one event, unless it is refused or a repeat; `value`: the event as JSON.
    fn take(
        &mut self,
        place: Place<'_>,
        event: Result<Event<'_>, Refusal>,
        value: impl Fn() -> Option<Bytes>,
    ) {
        let refused = match &event {
            Ok(event) => self.misrouted(event),
            Err(refusal) => Some(refusal.clone()),
        };
        if let Some((code, reason)) = refused {
            return self.set_aside(place, code, &reason, value().unwrap_or_default());
        }
        let Ok(event) = event else { return };
        if self.occurs(place, &event) {
            self.repeats = self.repeats.saturating_add(1);
            return;
        }
        match event.action {
            Action::Add(delta) => {
                let scope = self.scopes.number(event.namespace, &event.kind.name);
                self.add(place, scope, event.subject, delta);
            }
            Action::Set(actor) => self.act(place, &event, actor, true),
            Action::Unset(actor) => self.act(place, &event, actor, false),
        }
    }

    /// Adds a delta to its row, or lets it wait for the row's base.
    fn add(&mut self, place: Place<'_>, scope: u32, subject: &str, delta: i64) {
        let Record { offset, append_time_ms, .. } = *place.record;
        let (index, change) = (place.index, Change::Add(delta));
        self.change(scope, subject, Waiting { offset, index, change, append_time_ms });
    }

    /// Changes a row, or lets the change wait for the row's base.
    pub(super) fn change(&mut self, scope: u32, subject: &str, event: Waiting) {
        let number = self.rows.find(scope, subject).unwrap_or_else(|| {
            self.scopes.hold(scope);
            self.rows.add_loading(scope, subject)
        });
        if self.rows.get(number).is_some_and(Row::is_loading) {
            self.pending.wait(number, event);
        } else {
            self.count(number, event);
        }
    }

    /// Counts one event on a row that has its base, unless the base holds it.
    pub(super) fn count(&mut self, number: RowNumber, event: Waiting) {
        let delta = match event.change {
            Change::Add(delta) => delta,
            Change::Reset(generation) => return self.rows.reset(number, event.offset, generation),
        };
        match self.rows.add(number, event.offset, delta) {
            Added::Counted => self.folded_events = self.folded_events.saturating_add(1),
            Added::Before => {}
            Added::Overflow => {
                if let Some(row) = self.rows.get(number) {
                    let counter = self.scopes.counter(row.scope, &row.subject);
                    self.overflow(&counter, event, delta);
                }
            }
        }
    }

    fn overflow(&mut self, counter: &CounterId, event: Waiting, delta: i64) {
        let SubjectId { namespace, subject } = &counter.subject;
        let entry = Entry { scope: 0, subject, delta, id: None, actor: None };
        let value = Scope { namespace, kind: &counter.kind }.json_of(&entry);
        self.keep(DeadLetter {
            partition: self.partition,
            offset: event.offset,
            index: event.index,
            append_time_ms: event.append_time_ms,
            code: "overflow".into(),
            reason: format!("the total of {counter} would pass 64 bits").into(),
            key: Bytes::new(),
            value,
        });
    }

    pub(super) fn set_aside(&mut self, place: Place<'_>, code: &str, reason: &str, value: Bytes) {
        self.keep(DeadLetter {
            partition: self.partition,
            offset: place.record.offset,
            index: place.index,
            append_time_ms: place.record.append_time_ms,
            code: code.into(),
            reason: reason.into(),
            key: place.record.key.clone(),
            value,
        });
    }

    fn keep(&mut self, letter: DeadLetter) {
        const OVERHEAD: usize = 256;
        let bytes = letter.value.len().saturating_add(letter.key.len()).saturating_add(OVERHEAD);
        self.dead_letter_bytes = self.dead_letter_bytes.saturating_add(bytes);
        self.dead_letters.push(letter);
    }
}
