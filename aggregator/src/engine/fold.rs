//! The fold: records in, rows and dead letters changed.

use bytes::Bytes;
use tally_log::Record;
use tally_proto::{
    Act, Action, CounterId, Decoded, Event, EventBatch, EventError, Kinds, Mode, Offset, RawEvent,
    RecordError, Scope, decode_record,
};
use tally_service::mutant;
use tally_store::DeadLetter;

use super::pending::Waiting;
use super::rows::{Added, Row, RowNumber};
use super::{Engine, Stop, scopes};

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
            let applied = self.apply(&kinds, record);
            self.settle();
            if let Err(stop) = applied {
                outcome = Err(stop);
                break;
            }
            self.hole = None;
            self.next = record.offset.as_of();
            last = Some(record);
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
        let fingerprint = record.fingerprint();
        self.last = Some(fingerprint);
        self.marks.push_back(fingerprint);
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
        let place = Place { record, index: 0 };
        match decode_record(record.content_type, &record.value) {
            Ok(Decoded::Batch(batch)) => self.apply_batch(kinds, record, &batch),
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
        // The scopes of a record are few, and looked up once for all of its entries.
        let scopes: Vec<_> = batch
            .scopes()
            .map(|scope| match scopes::refuse(kinds, scope.kind, Mode::Tally) {
                None => Ok(self.scopes.number(scope.namespace, scope.kind)),
                Some(why) => Err((scope, why)),
            })
            .collect();
        let entries = u32::try_from(batch.entries().len()).unwrap_or(u32::MAX);
        for (index, entry) in (0u32..).zip(batch.entries()) {
            let place = Place { record, index };
            match scopes.get(entry.scope) {
                Some(Ok(scope)) => self.add(place, *scope, entry.subject, entry.delta),
                Some(Err((scope, (code, reason)))) => {
                    let value = event_json(scope.namespace, scope.kind, entry.subject, entry.delta);
                    self.set_aside(place, code, reason, value);
                }
                None => {} // decode has checked that every entry has a scope
            }
        }
        let scopes: Vec<_> = batch.scopes().collect();
        for (index, act) in (entries..).zip(batch.acts()) {
            let place = Place { record, index };
            let Some(scope) = scopes.get(act.scope) else { continue };
            let value = || act_json(scope, &act);
            match (kinds.get(scope.kind), scopes::refuse(kinds, scope.kind, Mode::Set)) {
                (Some(kind), None) => {
                    let action = if act.comes_in { Action::Set } else { Action::Unset };
                    let (namespace, subject) = (scope.namespace, act.subject);
                    let action = action(act.actor);
                    self.act(place, &Event { namespace, kind, subject, action }, value);
                }
                (_, why) => {
                    let (code, reason) = why.unwrap_or_default();
                    self.set_aside(place, code, &reason, value());
                }
            }
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
        match checked {
            Ok(Event { namespace, kind, subject, action: Action::Add(delta) }) => {
                let scope = self.scopes.number(namespace, &kind.name);
                self.add(place, scope, subject, delta);
            }
            Ok(event) => self.act(place, &event, || value.clone()),
            Err(error) => self.set_aside(place, error.code(), &error.to_string(), value.clone()),
        }
    }

    /// Adds a delta to its row, or lets it wait for the row's base.
    fn add(&mut self, place: Place<'_>, scope: u32, subject: &str, delta: i64) {
        let number = self.rows.find(scope, subject).unwrap_or_else(|| {
            self.scopes.hold(scope);
            self.rows.add_loading(scope, subject)
        });
        let event = Waiting {
            offset: place.record.offset,
            index: place.index,
            delta,
            append_time_ms: place.record.append_time_ms,
        };
        if self.rows.get(number).is_some_and(Row::is_loading) {
            self.pending.wait(number, event);
        } else {
            self.count(number, event);
        }
    }

    /// Counts one event on a row that has its base, unless the base holds it.
    pub(super) fn count(&mut self, number: RowNumber, event: Waiting) {
        match self.rows.add(number, event.offset, event.delta) {
            Added::Counted => self.folded_events = self.folded_events.saturating_add(1),
            Added::Before => {}
            Added::Overflow => {
                if let Some(row) = self.rows.get(number) {
                    let counter = self.scopes.counter(row.scope, &row.subject);
                    self.overflow(&counter, event);
                }
            }
        }
    }

    fn overflow(&mut self, counter: &CounterId, event: Waiting) {
        let subject = &counter.subject;
        let value = event_json(&subject.namespace, &counter.kind, &subject.subject, event.delta);
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

/// One entry of a batch as the JSON event that it stands for, so that it can be replayed.
fn event_json(namespace: &str, kind: &str, subject: &str, delta: i64) -> Bytes {
    // Names hold no character that JSON escapes.
    let event = format!(
        r#"{{"namespace":"{namespace}","kind":"{kind}","subject":"{subject}","delta":{delta}}}"#
    );
    Bytes::from(event)
}

/// One act of a batch as the JSON event that it stands for.
fn act_json(scope: &Scope<'_>, act: &Act<'_>) -> Bytes {
    let Scope { namespace, kind } = scope;
    let op = if act.comes_in { "set" } else { "unset" };
    let (subject, actor) = (act.subject, act.actor);
    Bytes::from(format!(
        r#"{{"namespace":"{namespace}","kind":"{kind}","subject":"{subject}","op":"{op}","actor":"{actor}"}}"#
    ))
}
