//! Scopes: (namespace, kind) pairs by number, so that a row holds four bytes of them.

use std::collections::HashMap;

use tally_proto::{CounterId, Kind, Kinds, Mode, SubjectId};

use super::repeats::Refusal;

/// The scopes that rows belong to; one that has no more rows is given back.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    slots: Vec<Scope>,
    free: Vec<u32>,
    numbers: HashMap<(Box<str>, Box<str>), u32, foldhash::fast::FixedState>,
    /// The scope that was asked for last: most records stay within one.
    recent: Option<u32>,
}

#[derive(Debug, Default)]
struct Scope {
    namespace: Box<str>,
    kind: Box<str>,
    rows: u64,
}

impl Scopes {
    /// The number of a scope whose kind is declared.
    pub(super) fn number(&mut self, namespace: &str, kind: &str) -> u32 {
        if let Some(number) = self.recent
            && let Some(scope) = self.slots.get(number as usize)
            && &*scope.kind == kind
            && &*scope.namespace == namespace
        {
            return number;
        }
        let key = (Box::from(namespace), Box::from(kind));
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.add(key),
        };
        self.recent = Some(number);
        number
    }

    fn add(&mut self, key: (Box<str>, Box<str>)) -> u32 {
        let scope = Scope { namespace: key.0.clone(), kind: key.1.clone(), rows: 0 };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.slots.push(Scope::default());
                u32::try_from(self.slots.len().saturating_sub(1)).unwrap_or(u32::MAX)
            }
        };
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = scope;
        }
        self.numbers.insert(key, number);
        number
    }

    /// A row of the scope came into memory.
    pub(super) fn hold(&mut self, number: u32) {
        if let Some(scope) = self.slots.get_mut(number as usize) {
            scope.rows = scope.rows.saturating_add(1);
        }
    }

    /// A row of the scope was evicted.
    pub(super) fn release(&mut self, number: u32) {
        let Some(scope) = self.slots.get_mut(number as usize) else { return };
        scope.rows = scope.rows.saturating_sub(1);
        if scope.rows == 0 {
            let scope = std::mem::take(scope);
            self.numbers.remove(&(scope.namespace, scope.kind));
            self.free.push(number);
            self.recent = None;
        }
    }

    /// The counter of a subject in a scope.
    pub(super) fn counter(&self, number: u32, subject: &str) -> CounterId {
        let (namespace, kind) = self
            .slots
            .get(number as usize)
            .map_or_else(Default::default, |scope| (scope.namespace.clone(), scope.kind.clone()));
        CounterId { subject: SubjectId { namespace, subject: subject.into() }, kind }
    }

    /// The number of a counter's scope, if it is held.
    pub(super) fn find(&self, counter: &CounterId) -> Option<u32> {
        let key = (counter.subject.namespace.clone(), counter.kind.clone());
        self.numbers.get(&key).copied()
    }
}

/// A scope of a batch and its kind, if what is done there fits the kind's mode: deltas belong to
/// one, acts to the other.
pub(super) fn declared<'e>(
    kinds: &'e Kinds,
    scopes: &[tally_proto::Scope<'e>],
    number: usize,
    mode: Mode,
) -> Result<(tally_proto::Scope<'e>, &'e Kind), Refusal> {
    // Decoding has checked that everything has a scope.
    let scope = *scopes.get(number).ok_or(("damaged_batch", "no scope".to_owned()))?;
    let name = scope.kind;
    match kinds.get(name) {
        Some(kind) if kind.mode == mode => Ok((scope, kind)),
        Some(Kind { mode: Mode::Tally, .. }) => {
            Err(("wrong_op", format!("kind '{name}' takes op add")))
        }
        Some(Kind { mode: Mode::Set, .. }) => {
            Err(("wrong_op", format!("kind '{name}' takes op set or unset")))
        }
        None => Err(("unknown_kind", format!("kind '{name}' is not declared"))),
    }
}
