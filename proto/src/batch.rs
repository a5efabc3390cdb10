//! The packed record: many events, counters interned, column by column.
//!
//! Plain deltas on one counter are one entry; an event with an id keeps one of its own.

mod builder;

use bytes::Bytes;
use prost::Message;

use crate::event::{Op, RawEvent};
use crate::name::{DEFAULT_NAMESPACE, check_name};
use crate::record::RecordError;
use crate::wire;

pub use builder::{BatchBuilder, Full};

/// A (namespace, kind) pair of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The namespace, `default` where the record leaves it out.
    pub namespace: &'a str,
    /// The kind's name, declared or not.
    pub kind: &'a str,
}

impl Scope<'_> {
    /// An entry as the JSON event that it stands for, so that it can be sent again.
    pub fn json_of(&self, entry: &Entry<'_>) -> Bytes {
        let delta = Some(entry.delta);
        json(&RawEvent { delta, ..self.raw(entry.subject, entry.actor, entry.id) })
    }

    /// An act as the JSON event that it stands for.
    pub fn json_of_act(&self, act: &Act<'_>) -> Bytes {
        let op = Some(if act.comes_in { Op::Set } else { Op::Unset });
        json(&RawEvent { op, ..self.raw(act.subject, Some(act.actor), act.id) })
    }

    fn raw<'t>(
        &'t self,
        subject: &'t str,
        actor: Option<&'t str>,
        id: Option<&'t str>,
    ) -> RawEvent<'t> {
        RawEvent {
            namespace: Some(self.namespace.into()),
            kind: self.kind.into(),
            subject: subject.into(),
            op: None,
            delta: None,
            actor: actor.map(Into::into),
            id: id.map(Into::into),
            time: None,
            region: None,
        }
    }
}

fn json(event: &RawEvent<'_>) -> Bytes {
    serde_json::to_vec(event).unwrap_or_default().into()
}

/// One entry of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The index of its scope.
    pub scope: usize,
    /// The thing counted.
    pub subject: &'a str,
    /// The sum of the deltas that were added up; may be zero.
    pub delta: i64,
    /// The id of the one event that it is; nothing where it sums up many.
    pub id: Option<&'a str>,
    /// Who acted, where an id and an actor were named.
    pub actor: Option<&'a str>,
}

/// One act on a set of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act<'a> {
    /// The index of its scope.
    pub scope: usize,
    /// The thing counted.
    pub subject: &'a str,
    /// Who acts.
    pub actor: &'a str,
    /// Whether the actor comes in, or goes out.
    pub comes_in: bool,
    /// Its id, where it was given.
    pub id: Option<&'a str>,
}

/// A batch that was read back: every index is in range, every name is a name.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch(wire::EventBatch);

impl EventBatch {
    /// The batch of a record's value, whose bytes it shares.
    pub fn decode(value: Bytes) -> Result<Self, RecordError> {
        let damaged = |what: &str| RecordError::Damaged(what.into());
        let wire = wire::EventBatch::decode(value)
            .map_err(|error| RecordError::Damaged(error.to_string()))?;
        if wire.scope_of.len() != wire.subjects.len() || wire.counter_of.len() != wire.deltas.len()
        {
            return Err(damaged("columns of different lengths"));
        }
        if wire.scope_of.iter().any(|scope| *scope as usize >= wire.scopes.len()) {
            return Err(damaged("a counter of no scope"));
        }
        if wire.counter_of.iter().any(|counter| *counter as usize >= wire.subjects.len()) {
            return Err(damaged("an entry of no counter"));
        }
        let acts = wire.act_counter_of.len();
        if wire.actors.len() != acts || wire.comes_in.len() != acts {
            return Err(damaged("columns of different lengths"));
        }
        if wire.act_counter_of.iter().any(|counter| *counter as usize >= wire.subjects.len()) {
            return Err(damaged("an act on no counter"));
        }
        let ids = wire.id_entry.len();
        if wire.entry_ids.len() != ids
            || wire.entry_actors.len() != ids
            || wire.act_ids.len() != wire.id_act.len()
        {
            return Err(damaged("columns of different lengths"));
        }
        let entries = wire.deltas.len();
        if !name_each_once(&wire.id_entry, entries) || !name_each_once(&wire.id_act, acts) {
            return Err(damaged("an id of no event"));
        }
        let is_name =
            |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|n| check_name(n).is_ok());
        let scope_ok = |scope: &wire::Scope| {
            (scope.namespace.is_empty() || is_name(&scope.namespace)) && is_name(&scope.kind)
        };
        if !wire.scopes.iter().all(scope_ok)
            || !wire.subjects.iter().all(|s| is_name(s))
            || !wire.actors.iter().all(|actor| is_name(actor))
            || !wire.entry_ids.iter().chain(&wire.act_ids).all(|id| is_name(id))
            || !wire.entry_actors.iter().all(|actor| actor.is_empty() || is_name(actor))
        {
            return Err(damaged("a name that is none"));
        }
        Ok(EventBatch(wire))
    }

    /// How many events were summed into it, by its own account.
    pub fn events(&self) -> u64 {
        self.0.events
    }

    /// Its scopes, in the order of their indices.
    pub fn scopes(&self) -> impl ExactSizeIterator<Item = Scope<'_>> {
        self.0.scopes.iter().map(|scope| Scope {
            namespace: match text(&scope.namespace) {
                "" => DEFAULT_NAMESPACE,
                namespace => namespace,
            },
            kind: text(&scope.kind),
        })
    }

    /// Its entries, in order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let ids = self.0.entry_ids.iter().zip(&self.0.entry_actors);
        let mut ids = self.0.id_entry.iter().zip(ids).peekable();
        let entries = self.0.counter_of.iter().zip(&self.0.deltas).enumerate();
        entries.map(move |(index, (counter, delta))| {
            let (scope, subject) = self.counter(*counter);
            let named = ids.next_if(|(entry, _)| **entry as usize == index);
            let (id, actor) = named.map_or(("", ""), |(_, (id, actor))| (text(id), text(actor)));
            Entry { scope, subject, delta: *delta, id: named_one(id), actor: named_one(actor) }
        })
    }

    /// Its acts on sets, in order. In a dead letter's index they come after the entries.
    pub fn acts(&self) -> impl ExactSizeIterator<Item = Act<'_>> {
        let mut ids = self.0.id_act.iter().zip(&self.0.act_ids).peekable();
        let acts = self.0.act_counter_of.iter().zip(&self.0.actors).zip(&self.0.comes_in);
        acts.enumerate().map(move |(index, ((counter, actor), comes_in))| {
            let (scope, subject) = self.counter(*counter);
            let id = ids.next_if(|(act, _)| **act as usize == index).map(|(_, id)| text(id));
            Act { scope, subject, actor: text(actor), comes_in: *comes_in, id }
        })
    }

    /// Whether any of its events has an id.
    pub fn has_ids(&self) -> bool {
        !self.0.id_entry.is_empty() || !self.0.id_act.is_empty()
    }

    /// Scope and subject of a counter.
    fn counter(&self, counter: u32) -> (usize, &str) {
        let at = counter as usize;
        let scope = self.0.scope_of.get(at).map_or(0, |scope| *scope as usize);
        (scope, self.0.subjects.get(at).map_or("", |subject| text(subject)))
    }
}

/// Whether indices rise and stay below `end`: each names one event.
fn name_each_once(indices: &[u32], end: usize) -> bool {
    indices.is_sorted_by(|a, b| a < b) && indices.last().is_none_or(|last| (*last as usize) < end)
}

fn named_one(name: &str) -> Option<&str> {
    (!name.is_empty()).then_some(name)
}

/// A name that `decode` has checked, so it is UTF-8.
fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Action, Event};
    use crate::kind::{Kind, Kinds};
    use crate::limits::MAX_RECORD_BYTES;

    /// The bytes of the first version, for ever.
    const GOLDEN: &[u8] = include_bytes!("../golden/event-batch.bin");

    fn plain<'e>(
        namespace: &'e str,
        kind: &'e Kind,
        subject: &'e str,
        action: Action<'e>,
    ) -> Event<'e> {
        let actor = match action {
            Action::Add(_) => None,
            Action::Set(actor) | Action::Unset(actor) => Some(actor),
        };
        Event { namespace, kind, subject, action, actor, id: None }
    }

    fn pack(events: &[(&str, &str, &str, i64)]) -> Bytes {
        let kinds = Kinds::built_in();
        let mut builder = BatchBuilder::default();
        for (namespace, kind, subject, delta) in events {
            let kind = kinds.get(kind).unwrap();
            let action = Action::Add(*delta);
            builder.try_push(&plain(namespace, kind, subject, action)).unwrap();
        }
        builder.finish()
    }

    fn unpack(value: Bytes) -> Vec<(String, String, String, i64)> {
        let batch = EventBatch::decode(value).unwrap();
        let scopes: Vec<_> = batch.scopes().collect();
        let entry = |e: Entry<'_>| {
            let scope = scopes[e.scope];
            (scope.namespace.into(), scope.kind.into(), e.subject.into(), e.delta)
        };
        batch.entries().map(entry).collect()
    }

    #[test]
    fn deltas_on_one_counter_are_summed() {
        let value = pack(&[
            ("default", "view", "video:1", 1),
            ("default", "reply", "video:1", 1),
            ("eu", "view", "video:1", 7),
            ("default", "view", "video:1", 2),
        ]);
        assert_eq!(value.as_ref(), GOLDEN);
        let own = |n: &str, k: &str, s: &str, d| (n.into(), k.into(), s.into(), d);
        assert_eq!(
            unpack(value),
            [
                own("default", "view", "video:1", 3),
                own("default", "reply", "video:1", 1),
                own("eu", "view", "video:1", 7),
            ]
        );
    }

    #[test]
    fn acts_stand_in_their_order_beside_deltas() {
        let kinds = Kinds::built_in();
        let mut builder = BatchBuilder::default();
        let mut push = |kind: &str, subject: &str, action: Action<'_>| {
            let kind = kinds.get(kind).unwrap();
            builder.try_push(&plain("default", kind, subject, action)).unwrap();
        };
        push("like", "a", Action::Set("user:1"));
        push("view", "a", Action::Add(2));
        push("like", "a", Action::Unset("user:1"));
        push("view", "a", Action::Add(3));
        let value = builder.finish();
        let batch = EventBatch::decode(value.clone()).unwrap();
        let kinds: Vec<_> = batch.scopes().map(|scope| scope.kind).collect();
        let acts: Vec<_> =
            batch.acts().map(|a| (kinds[a.scope], a.subject, a.actor, a.comes_in)).collect();
        assert_eq!(acts, [("like", "a", "user:1", true), ("like", "a", "user:1", false)]);
        assert_eq!(batch.events(), 4);
        let own = |n: &str, k: &str, s: &str, d| (n.into(), k.into(), s.into(), d);
        assert_eq!(unpack(value), [own("default", "view", "a", 5)]);
    }

    #[test]
    fn an_event_with_an_id_keeps_an_entry_of_its_own() {
        let kinds = Kinds::built_in();
        let mut builder = BatchBuilder::default();
        for json in [
            r#"{"kind":"view","subject":"a"}"#,
            r#"{"kind":"view","subject":"a","delta":2,"id":"1"}"#,
            r#"{"kind":"view","subject":"a","delta":4}"#,
            r#"{"kind":"view","subject":"a","delta":8,"id":"2","actor":"user:9"}"#,
            r#"{"kind":"like","subject":"a","actor":"user:9"}"#,
            r#"{"kind":"like","subject":"a","actor":"user:9","op":"unset","id":"1"}"#,
        ] {
            let raw = RawEvent::parse(json).unwrap();
            builder.try_push(&raw.check(&kinds).unwrap()).unwrap();
        }
        let value = builder.finish();
        let batch = EventBatch::decode(value).unwrap();
        let entries: Vec<_> = batch.entries().map(|e| (e.delta, e.id, e.actor)).collect();
        assert_eq!(
            entries,
            [(5, None, None), (2, Some("1"), None), (8, Some("2"), Some("user:9"))]
        );
        assert_eq!(batch.acts().map(|act| act.id).collect::<Vec<_>>(), [None, Some("1")]);
        let scopes: Vec<_> = batch.scopes().collect();
        let again = scopes[0].json_of(&batch.entries().last().unwrap());
        let expected = r#"{"namespace":"default","kind":"view","subject":"a","delta":8,"actor":"user:9","id":"2"}"#;
        assert_eq!(again, expected);
    }

    #[test]
    fn an_id_of_no_event_damages_a_record() {
        let of = |id_entry: Vec<u32>| {
            let wire = wire::EventBatch {
                scopes: vec![wire::Scope { kind: "view".into(), ..Default::default() }],
                subjects: vec!["a".into()],
                scope_of: vec![0],
                counter_of: vec![0, 0],
                deltas: vec![1, 1],
                entry_ids: vec!["1".into(); id_entry.len()],
                entry_actors: vec!["".into(); id_entry.len()],
                id_entry,
                ..Default::default()
            };
            EventBatch::decode(wire.encode_to_vec().into())
        };
        assert!(of(vec![]).is_ok() && of(vec![1]).is_ok() && of(vec![0, 1]).is_ok());
        for wrong in [vec![2], vec![1, 0], vec![0, 0], vec![0, 1, 2]] {
            assert!(matches!(of(wrong), Err(RecordError::Damaged(_))));
        }
    }

    #[test]
    fn a_record_that_is_full_says_so() {
        let kinds = Kinds::built_in();
        let kind = kinds.get("view").unwrap();
        let mut builder = BatchBuilder::default();
        let mut pushed = 0;
        loop {
            let subject = format!("video:{pushed}");
            let event = plain("default", kind, &subject, Action::Add(1));
            if builder.try_push(&event) == Err(Full) {
                break;
            }
            pushed += 1;
        }
        assert_eq!(builder.events(), pushed);
        let value = builder.finish();
        assert!(value.len() <= MAX_RECORD_BYTES && value.len() > MAX_RECORD_BYTES / 4);
        assert_eq!(unpack(value).len() as u64, pushed);
    }

    #[test]
    fn a_sum_that_would_overflow_goes_into_a_new_record() {
        let kinds = Kinds::built_in();
        let kind = kinds.get("view").unwrap();
        let event = |d| plain("a", kind, "s", Action::Add(d));
        let mut builder = BatchBuilder::default();
        assert_eq!(builder.try_push(&event(i64::MAX)), Ok(()));
        assert_eq!(builder.try_push(&event(1)), Err(Full));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_batch_or_an_error(bytes: Vec<u8>) {
            if let Ok(batch) = EventBatch::decode(bytes.into()) {
                prop_assert!(batch.entries().all(|entry| entry.scope < batch.scopes().len()));
            }
        }

        #[test]
        fn a_batch_that_lost_or_changed_a_byte_is_read_or_refused(at: usize, byte: u8) {
            let mut bytes = GOLDEN.to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = EventBatch::decode(bytes.clone().into()).map(|b| b.entries().count());
            bytes.truncate(at);
            let _ = EventBatch::decode(bytes.into()).map(|b| b.entries().count());
        }
    }
}
