//! Resets: a counter begins anew in every partition.
//!
//! The partition of the counter's slot 0 decides when: the place of the reset's first record there
//! is the counter's new generation. Who wrote it carries it to all other partitions before it says
//! that it is done; if it died on the way, the fold carries it on, before a checkpoint passes it.

use tally_log::Record;
use tally_proto::{Kinds, Mode, Reset, Stamp, route};
use tally_service::mutant;

use super::Engine;
use super::fold::Place;
use super::pending::{Change, Waiting};
use super::set::{Act, Deed};

impl Engine {
    /// Begins a counter anew.
    pub(super) fn reset(&mut self, kinds: &Kinds, record: &Record, reset: Reset) {
        let (place, counter) = (Place::whole(record), &reset.counter);
        let Some(kind) = kinds.get(&counter.kind) else {
            let reason = format!("kind '{}' is not declared", counter.kind);
            return self.set_aside(place, "unknown_kind", &reason, record.value.clone());
        };
        let (namespace, subject) = (&*counter.subject.namespace, &*counter.subject.subject);
        let generation = match reset.generation {
            Some(generation) => generation,
            None => {
                let home = route(namespace, subject, 0, self.partitions);
                let generation = Reset::generation_at(self.epoch, record.offset.as_of());
                let Some(generation) = generation.ok().filter(|_| home == self.partition) else {
                    let reason = format!("a reset of {counter} begins in partition {home}");
                    return self.set_aside(place, "misrouted", &reason, record.value.clone());
                };
                let counter = counter.clone();
                self.carry.push(Reset { counter, generation: Some(generation) });
                generation
            }
        };
        let (offset, append_time_ms) = (record.offset, record.append_time_ms);
        match kind.mode {
            Mode::Tally => {
                let change = Change::Reset(generation);
                let scope = self.scopes.number(namespace, &kind.name);
                self.change(scope, subject, Waiting { offset, index: 0, change, append_time_ms });
            }
            Mode::Set => {
                let act = Act { offset, actor: Box::default(), deed: Deed::Reset(generation) };
                self.queue_act(namespace, kind, subject, act);
            }
        }
    }

    /// The next act that waits on a set begins it anew: done, unless the base holds it, or a newer
    /// reset came before it.
    pub(super) fn reset_set(&mut self, number: super::rows::RowNumber, has: bool) -> bool {
        let Some((offset, generation)) = self.sets.take_reset(number) else { return false };
        let is_newer = self.rows.get(number).is_some_and(|row| generation > row.generation);
        if has || !is_newer {
            return true;
        }
        if let Ok(since) = Stamp::new(self.epoch, offset.as_of())
            && !mutant!("reset-keeps-members")
        {
            self.sets.begin_anew(number, since);
        }
        self.rows.reset(number, offset, generation);
        true
    }
}
