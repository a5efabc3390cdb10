//! The packed record: many events, counters interned, plain deltas summed per counter.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;
use prost::Message;

use crate::event::{Action, Event};
use crate::limits::MAX_RECORD_BYTES;
use crate::name::{DEFAULT_NAMESPACE, check_name};
use crate::record::RecordError;
use crate::wire;

/// The record has no room for another event: finish it, and begin a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Gathers events into one record.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    wire: wire::EventBatch,
    /// (scope, subject) to the index of its counter; keys come straight from the network.
    counters: HashTable<u32>,
    /// Per counter: the index of the entry that its deltas are summed in.
    entry_of: Vec<Option<u32>>,
    hasher: RandomState,
    /// An upper bound of the encoded length.
    bytes: usize,
}

/// Upper bound of what one more counter costs beside its subject: a tag and a length of the
/// subject (4), and three varints (5, 5 and 10).
const COUNTER_BYTES: usize = 24;

/// Upper bound of what one more act costs beside its actor: a tag and a length, a varint, a flag.
const ACT_BYTES: usize = 10;

impl BatchBuilder {
    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.wire.events == 0
    }

    /// How many events were added.
    pub fn events(&self) -> u64 {
        self.wire.events
    }

    /// Adds one event, or says that the record is full.
    pub fn try_push(&mut self, event: &Event<'_>) -> Result<(), Full> {
        let actor = match event.action {
            Action::Add(_) => "",
            Action::Set(actor) | Action::Unset(actor) => actor,
        };
        let act_cost = actor.len().saturating_add(ACT_BYTES);
        let cost = event.subject.len().saturating_add(COUNTER_BYTES).saturating_add(act_cost);
        if self.bytes.saturating_add(cost) > MAX_RECORD_BYTES && !self.is_empty() {
            return Err(Full);
        }
        let counter = self.counter(event)?;
        match event.action {
            Action::Add(delta) => self.add(counter, delta)?,
            Action::Set(_) | Action::Unset(_) => {
                self.wire.act_counter_of.push(counter);
                self.wire.actors.push(Bytes::copy_from_slice(actor.as_bytes()));
                self.wire.comes_in.push(matches!(event.action, Action::Set(_)));
                self.bytes = self.bytes.saturating_add(act_cost);
            }
        }
        self.wire.events = self.wire.events.saturating_add(1);
        Ok(())
    }

    /// Adds a delta to the counter's entry, or begins one.
    fn add(&mut self, counter: u32, delta: i64) -> Result<(), Full> {
        let entry = self.entry_of.get(counter as usize).copied().flatten();
        match entry.and_then(|entry| self.wire.deltas.get_mut(entry as usize)) {
            // A sum that would overflow goes on in a new record.
            Some(sum) => *sum = sum.checked_add(delta).ok_or(Full)?,
            None => {
                let entry = u32::try_from(self.wire.deltas.len()).map_err(|_| Full)?;
                self.wire.counter_of.push(counter);
                self.wire.deltas.push(delta);
                if let Some(place) = self.entry_of.get_mut(counter as usize) {
                    *place = Some(entry);
                }
            }
        }
        Ok(())
    }

    /// The index of an event's counter.
    fn counter(&mut self, event: &Event<'_>) -> Result<u32, Full> {
        let scope = self.scope(event.namespace, &event.kind.name);
        let hash = self.hasher.hash_one((scope, event.subject));
        let wire = &mut self.wire;
        let known = self.counters.find(hash, |counter| {
            let at = *counter as usize;
            wire.scope_of.get(at) == Some(&scope)
                && wire.subjects.get(at).is_some_and(|known| known == event.subject)
        });
        if let Some(counter) = known {
            return Ok(*counter);
        }
        let counter = u32::try_from(wire.subjects.len()).map_err(|_| Full)?;
        wire.subjects.push(Bytes::copy_from_slice(event.subject.as_bytes()));
        wire.scope_of.push(scope);
        self.entry_of.push(None);
        self.bytes = self.bytes.saturating_add(event.subject.len()).saturating_add(COUNTER_BYTES);
        let hasher = &self.hasher;
        self.counters.insert_unique(hash, counter, |counter| {
            let at = *counter as usize;
            let subject = wire.subjects.get(at).map_or(&b""[..], |subject| subject);
            let scope = wire.scope_of.get(at).copied().unwrap_or(0);
            hasher.hash_one((scope, std::str::from_utf8(subject).unwrap_or("")))
        });
        Ok(counter)
    }

    /// The record's bytes.
    pub fn finish(self) -> Bytes {
        self.wire.encode_to_vec().into()
    }

    /// The index of a scope; a record names few, so they are searched in line.
    fn scope(&mut self, namespace: &str, kind: &str) -> u32 {
        let namespace = if namespace == DEFAULT_NAMESPACE { "" } else { namespace };
        let known =
            self.wire.scopes.iter().rposition(|s| s.kind == kind && s.namespace == namespace);
        let index = known.unwrap_or_else(|| {
            self.wire.scopes.push(wire::Scope {
                namespace: Bytes::copy_from_slice(namespace.as_bytes()),
                kind: Bytes::copy_from_slice(kind.as_bytes()),
            });
            self.bytes = self
                .bytes
                .saturating_add(namespace.len())
                .saturating_add(kind.len())
                .saturating_add(12);
            self.wire.scopes.len().saturating_sub(1)
        });
        u32::try_from(index).unwrap_or(u32::MAX)
    }
}

/// A (namespace, kind) pair of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The namespace, `default` where the record leaves it out.
    pub namespace: &'a str,
    /// The kind's name, declared or not.
    pub kind: &'a str,
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
        let is_name =
            |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|n| check_name(n).is_ok());
        let scope_ok = |scope: &wire::Scope| {
            (scope.namespace.is_empty() || is_name(&scope.namespace)) && is_name(&scope.kind)
        };
        if !wire.scopes.iter().all(scope_ok)
            || !wire.subjects.iter().all(|s| is_name(s))
            || !wire.actors.iter().all(|actor| is_name(actor))
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
        self.0.counter_of.iter().zip(&self.0.deltas).map(|(counter, delta)| {
            let (scope, subject) = self.counter(*counter);
            Entry { scope, subject, delta: *delta }
        })
    }

    /// Its acts on sets, in order. In a dead letter's index they come after the entries.
    pub fn acts(&self) -> impl ExactSizeIterator<Item = Act<'_>> {
        let acts = self.0.act_counter_of.iter().zip(&self.0.actors).zip(&self.0.comes_in);
        acts.map(|((counter, actor), comes_in)| {
            let (scope, subject) = self.counter(*counter);
            Act { scope, subject, actor: text(actor), comes_in: *comes_in }
        })
    }

    /// Scope and subject of a counter.
    fn counter(&self, counter: u32) -> (usize, &str) {
        let at = counter as usize;
        let scope = self.0.scope_of.get(at).map_or(0, |scope| *scope as usize);
        (scope, self.0.subjects.get(at).map_or("", |subject| text(subject)))
    }
}

/// A name that `decode` has checked, so it is UTF-8.
fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kind::Kinds;

    /// The bytes of the first version, for ever.
    const GOLDEN: &[u8] = include_bytes!("../golden/event-batch.bin");

    fn pack(events: &[(&str, &str, &str, i64)]) -> Bytes {
        let kinds = Kinds::built_in();
        let mut builder = BatchBuilder::default();
        for (namespace, kind, subject, delta) in events {
            let kind = kinds.get(kind).unwrap();
            let action = Action::Add(*delta);
            builder.try_push(&Event { namespace, kind, subject, action }).unwrap();
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
            builder.try_push(&Event { namespace: "default", kind, subject, action }).unwrap();
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
    fn a_record_that_is_full_says_so() {
        let kinds = Kinds::built_in();
        let kind = kinds.get("view").unwrap();
        let mut builder = BatchBuilder::default();
        let mut pushed = 0;
        loop {
            let subject = format!("video:{pushed}");
            let event =
                Event { namespace: "default", kind, subject: &subject, action: Action::Add(1) };
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
        let event = |d| Event { namespace: "a", kind, subject: "s", action: Action::Add(d) };
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
