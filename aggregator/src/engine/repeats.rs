//! Repeats: an event whose id occurred before, on the same counter, is left out.
//!
//! A fold that resumes reads the window's records again first, without counting them.

use tally_log::Record;
use tally_proto::{
    Act, Action, Decoded, Entry, Event, EventBatch, Kinds, Mode, RawEvent, Scope, decode_record,
    id_hash, route, route_key,
};
use tally_service::mutant;

use super::fold::Place;
use super::{Engine, scopes};

/// Why an event is set aside: code and reason.
pub(super) type Refusal = (&'static str, String);

impl Engine {
    /// Whether it still reads what lies below the checkpoint at start, for its ids only.
    pub fn is_refilling(&self) -> bool {
        self.next < self.resumed_at
    }

    /// How many repeats were left out since this was asked last.
    pub fn take_repeats(&mut self) -> u64 {
        std::mem::take(&mut self.repeats)
    }

    /// Remembers the ids of a record that was counted long ago.
    pub(super) fn remember(&mut self, kinds: &Kinds, record: &Record) {
        match decode_record(record.content_type, &record.value) {
            Ok(Decoded::Batch(batch)) if batch.has_ids() => {
                self.remember_batch(kinds, record, &batch);
            }
            Ok(Decoded::One(Ok(raw))) => self.remember_json(kinds, record, &raw),
            Ok(Decoded::Array(items)) => {
                for raw in items.iter().filter_map(|item| RawEvent::parse(item.get()).ok()) {
                    self.remember_json(kinds, record, &raw);
                }
            }
            Ok(Decoded::Batch(_) | Decoded::One(Err(_)) | Decoded::Reset(_)) | Err(_) => {}
        }
    }

    fn remember_batch(&mut self, kinds: &Kinds, record: &Record, batch: &EventBatch) {
        let scopes: Vec<_> = batch.scopes().collect();
        for entry in batch.entries().filter(|entry| entry.id.is_some()) {
            if let Ok(event) = event_of(kinds, &scopes, &entry) {
                self.remember_event(record, &event);
            }
        }
        for act in batch.acts().filter(|act| act.id.is_some()) {
            if let Ok(event) = event_of_act(kinds, &scopes, &act) {
                self.remember_event(record, &event);
            }
        }
    }

    fn remember_json(&mut self, kinds: &Kinds, record: &Record, raw: &RawEvent<'_>) {
        if let Ok(event) = raw.check(kinds) {
            self.remember_event(record, &event);
        }
    }

    fn remember_event(&mut self, record: &Record, event: &Event<'_>) {
        if self.misrouted(event).is_none() {
            self.occurs(Place::whole(record), event);
        }
    }

    /// Notes the id of an event that came to its partition; says whether it occurred before.
    pub(super) fn occurs(&mut self, place: Place<'_>, event: &Event<'_>) -> bool {
        let Some(id) = event.id else { return false };
        let hash = id_hash(event.namespace, &event.kind.name, event.subject, id);
        let Record { offset, append_time_ms, .. } = place.record;
        self.window.occurs(hash, *offset, *append_time_ms)
    }

    /// Why an event of which something is remembered must not be counted here.
    pub(super) fn misrouted(&self, event: &Event<'_>) -> Option<Refusal> {
        if !event.is_stateful() || mutant!("misrouted-is-counted") {
            return None;
        }
        let (namespace, subject, slot) = (event.namespace, event.subject, event.slot());
        let home = route(namespace, subject, slot, self.partitions);
        let who = event.actor.or(event.id).unwrap_or_default();
        (home != self.partition).then(|| {
            let key = route_key(namespace, subject, slot);
            let reason = format!(
                "'{who}' of this counter belongs to partition {home}: key the record with '{key}'"
            );
            ("misrouted", reason)
        })
    }
}

/// The event that an entry of a batch stands for.
pub(super) fn event_of<'e>(
    kinds: &'e Kinds,
    scopes: &[Scope<'e>],
    entry: &Entry<'e>,
) -> Result<Event<'e>, Refusal> {
    let (scope, kind) = scopes::declared(kinds, scopes, entry.scope, Mode::Tally)?;
    let Entry { subject, delta, id, actor, .. } = *entry;
    let action = Action::Add(delta);
    Ok(Event { namespace: scope.namespace, kind, subject, action, actor, id })
}

/// The event that an act of a batch stands for.
pub(super) fn event_of_act<'e>(
    kinds: &'e Kinds,
    scopes: &[Scope<'e>],
    act: &Act<'e>,
) -> Result<Event<'e>, Refusal> {
    let (scope, kind) = scopes::declared(kinds, scopes, act.scope, Mode::Set)?;
    let Act { subject, actor, comes_in, id, .. } = *act;
    let action = if comes_in { Action::Set(actor) } else { Action::Unset(actor) };
    Ok(Event { namespace: scope.namespace, kind, subject, action, actor: Some(actor), id })
}
