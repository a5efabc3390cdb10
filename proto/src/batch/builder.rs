//! Packing: events go into a record, plain deltas on one counter as their sum.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use hashbrown::HashTable;
use prost::Message;

use crate::event::{Action, Event};
use crate::limits::MAX_RECORD_BYTES;
use crate::name::DEFAULT_NAMESPACE;
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

/// Upper bound of what one more act costs beside its actor, and of what one more id does beside its
/// bytes and its actor's: two tags and lengths, a varint, a flag.
const ACT_BYTES: usize = 16;
const ID_BYTES: usize = 16;

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
        let length = |name: Option<&str>| name.map_or(0, str::len);
        let names = length(event.actor).saturating_add(length(event.id));
        let own = names.saturating_add(ACT_BYTES).saturating_add(ID_BYTES);
        let cost = event.subject.len().saturating_add(COUNTER_BYTES).saturating_add(own);
        if self.bytes.saturating_add(cost) > MAX_RECORD_BYTES && !self.is_empty() {
            return Err(Full);
        }
        let counter = self.counter(event)?;
        match (event.action, event.id) {
            (Action::Add(delta), None) => self.add(counter, delta)?,
            (Action::Add(delta), Some(id)) => {
                self.add_once(counter, delta, id, event.actor)?;
                self.bytes = self.bytes.saturating_add(own);
            }
            (Action::Set(actor) | Action::Unset(actor), id) => {
                let comes_in = matches!(event.action, Action::Set(_));
                self.act(counter, actor, comes_in, id)?;
                self.bytes = self.bytes.saturating_add(own);
            }
        }
        self.wire.events = self.wire.events.saturating_add(1);
        Ok(())
    }

    /// Begins an entry of its own for a delta that has an id.
    fn add_once(
        &mut self,
        counter: u32,
        delta: i64,
        id: &str,
        actor: Option<&str>,
    ) -> Result<(), Full> {
        let entry = u32::try_from(self.wire.deltas.len()).map_err(|_| Full)?;
        self.wire.counter_of.push(counter);
        self.wire.deltas.push(delta);
        self.wire.id_entry.push(entry);
        self.wire.entry_ids.push(bytes_of(id));
        self.wire.entry_actors.push(bytes_of(actor.unwrap_or("")));
        Ok(())
    }

    fn act(
        &mut self,
        counter: u32,
        actor: &str,
        comes_in: bool,
        id: Option<&str>,
    ) -> Result<(), Full> {
        let act = u32::try_from(self.wire.actors.len()).map_err(|_| Full)?;
        self.wire.act_counter_of.push(counter);
        self.wire.actors.push(bytes_of(actor));
        self.wire.comes_in.push(comes_in);
        if let Some(id) = id {
            self.wire.id_act.push(act);
            self.wire.act_ids.push(bytes_of(id));
        }
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
        wire.subjects.push(bytes_of(event.subject));
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
            self.wire
                .scopes
                .push(wire::Scope { namespace: bytes_of(namespace), kind: bytes_of(kind) });
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

fn bytes_of(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}
