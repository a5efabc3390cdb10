//! The truth: what the log says, folded by the simplest means. The judge of every fact.

use std::collections::BTreeMap;

use tally_log::Record;
use tally_proto::{
    Action, AsOf, CounterId, Decoded, EventBatch, Kinds, Mode, Offset, RawEvent, decode_record,
};

/// One partition of one version of the log, folded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    /// By counter: where its total changed, and to what.
    totals: BTreeMap<CounterId, Vec<(Offset, i64)>>,
    /// What cannot be counted: place and code.
    dead_letters: BTreeMap<(Offset, u32), String>,
}

impl Truth {
    /// Folds one more record.
    pub(crate) fn apply(&mut self, kinds: &Kinds, record: &Record) {
        let offset = record.offset;
        match decode_record(record.content_type, &record.value) {
            Ok(Decoded::Batch(batch)) => self.batch(kinds, offset, &batch),
            Ok(Decoded::One(raw)) => self.event(kinds, (offset, 0), raw),
            Ok(Decoded::Array(items)) => {
                for (index, item) in (0..).zip(items) {
                    self.event(kinds, (offset, index), RawEvent::parse(item.get()));
                }
            }
            Err(error) => {
                self.dead_letters.insert((offset, 0), error.code().into());
            }
        }
    }

    fn batch(&mut self, kinds: &Kinds, offset: Offset, batch: &EventBatch) {
        let scopes: Vec<_> = batch.scopes().collect();
        for (index, entry) in (0..).zip(batch.entries()) {
            let scope = &scopes[entry.scope];
            let place = (offset, index);
            match kinds.get(scope.kind).map(|kind| kind.mode) {
                Some(Mode::Tally) => {
                    self.add(place, scope.namespace, scope.kind, entry.subject, entry.delta);
                }
                Some(Mode::Set) => {
                    self.dead_letters.insert(place, "wrong_op".into());
                }
                None => {
                    self.dead_letters.insert(place, "unknown_kind".into());
                }
            }
        }
    }

    fn event(
        &mut self,
        kinds: &Kinds,
        place: (Offset, u32),
        raw: Result<RawEvent<'_>, tally_proto::EventError>,
    ) {
        let checked = raw.as_ref().map_err(Clone::clone).and_then(|raw| raw.check(kinds));
        match checked {
            Ok(event) => {
                let Action::Add(delta) = event.action;
                self.add(place, event.namespace, &event.kind.name, event.subject, delta);
            }
            Err(error) => {
                self.dead_letters.insert(place, error.code().into());
            }
        }
    }

    fn add(
        &mut self,
        place: (Offset, u32),
        namespace: &str,
        kind: &str,
        subject: &str,
        delta: i64,
    ) {
        let Ok(counter) = CounterId::new(namespace, kind, subject) else { return };
        let steps = self.totals.entry(counter).or_default();
        let before = steps.last().map_or(0, |(_, total)| *total);
        match before.checked_add(delta) {
            Some(total) => match steps.last_mut().filter(|(offset, _)| *offset == place.0) {
                Some(step) => step.1 = total,
                None => steps.push((place.0, total)),
            },
            None => {
                self.dead_letters.insert(place, "overflow".into());
            }
        }
    }

    /// What a counter stands at, taking in every record below `as_of`.
    pub(crate) fn total(&self, counter: &CounterId, as_of: AsOf) -> i64 {
        let Some(steps) = self.totals.get(counter) else { return 0 };
        let passed = steps.partition_point(|(offset, _)| as_of.covers(*offset));
        passed.checked_sub(1).map_or(0, |last| steps[last].1)
    }

    /// Whether the counter ever stood there.
    pub(crate) fn ever(&self, counter: &CounterId, total: i64) -> bool {
        let steps = self.totals.get(counter);
        total == 0 || steps.is_some_and(|steps| steps.iter().any(|(_, at)| *at == total))
    }

    /// The last record below `below` that changed the counter.
    pub(crate) fn last_change(&self, counter: &CounterId, below: AsOf) -> Option<Offset> {
        let steps = self.totals.get(counter)?;
        let passed = steps.partition_point(|(offset, _)| below.covers(*offset));
        passed.checked_sub(1).map(|last| steps[last].0)
    }

    /// Every counter that occurs.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &CounterId> {
        self.totals.keys()
    }

    /// What cannot be counted: place and code.
    pub(crate) fn dead_letters(&self) -> &BTreeMap<(Offset, u32), String> {
        &self.dead_letters
    }
}
