//! The truth: what the log says, folded by the simplest means. The judge of every fact.

use std::collections::{BTreeMap, BTreeSet};

use tally_log::Record;
use tally_proto::{
    Action, AsOf, CounterId, Decoded, Event, EventBatch, Kinds, Mode, Offset, Partition, RawEvent,
    Reset, RetryWindow, decode_record, route,
};

/// One partition of one version of the log, folded.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    /// Which one, of how many.
    place: (Partition, u32),
    /// By counter: where its total changed, and to what.
    totals: BTreeMap<CounterId, Vec<(Offset, i64)>>,
    /// What cannot be counted: place and code.
    dead_letters: BTreeMap<(Offset, u32), String>,
    /// By counter of actors: where who is in changed, and to whom.
    sets: BTreeMap<CounterId, Vec<(Offset, SetState)>>,
    /// By counter: where it began anew, and in which generation.
    generations: BTreeMap<CounterId, Vec<(Offset, u64)>>,
    /// Every id that occurred, with its counter, and when.
    ids: Vec<(CounterId, String, i64)>,
    /// When the record at hand was appended.
    now_ms: i64,
}

/// Who is in, and since when the ledger holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SetState {
    pub(crate) members: BTreeSet<Box<str>>,
    pub(crate) spilled: Option<AsOf>,
}

impl Truth {
    /// The truth of a partition that is empty.
    pub(crate) fn new(partition: Partition, partitions: u32) -> Self {
        Truth {
            place: (partition, partitions),
            totals: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            sets: BTreeMap::new(),
            generations: BTreeMap::new(),
            ids: Vec::new(),
            now_ms: 0,
        }
    }

    /// Folds one more record.
    pub(crate) fn apply(&mut self, kinds: &Kinds, record: &Record) {
        let offset = record.offset;
        self.now_ms = record.append_time_ms;
        match decode_record(record.content_type, &record.value) {
            Ok(Decoded::Batch(batch)) => self.batch(kinds, offset, &batch),
            Ok(Decoded::Reset(reset)) => self.reset(offset, reset),
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
        self.spill(kinds, offset);
    }

    /// A record that brought more actors than a fact lists makes the set spill at its end.
    fn spill(&mut self, kinds: &Kinds, offset: Offset) {
        for (counter, steps) in &mut self.sets {
            let most = kinds.get(&counter.kind).map_or(0, |kind| kind.most_inline);
            if let Some((at, state)) = steps.last_mut()
                && *at == offset
                && state.members.len() > most
            {
                state.spilled.get_or_insert(offset.as_of());
            }
        }
    }

    fn batch(&mut self, kinds: &Kinds, offset: Offset, batch: &EventBatch) {
        let scopes: Vec<_> = batch.scopes().collect();
        for (index, entry) in (0..).zip(batch.entries()) {
            let scope = &scopes[entry.scope];
            let (namespace, subject) = (scope.namespace, entry.subject);
            match kinds.get(scope.kind) {
                Some(kind) if kind.mode == Mode::Tally => {
                    let (action, actor, id) = (Action::Add(entry.delta), entry.actor, entry.id);
                    let event = Event { namespace, kind, subject, action, actor, id };
                    self.take(kinds, (offset, index), &event);
                }
                Some(_) => self.refuse((offset, index), "wrong_op"),
                None => self.refuse((offset, index), "unknown_kind"),
            }
        }
        let entries = u32::try_from(batch.entries().len()).unwrap_or(u32::MAX);
        for (index, act) in (entries..).zip(batch.acts()) {
            let scope = &scopes[act.scope];
            let Some(kind) = kinds.get(scope.kind) else {
                self.refuse((offset, index), "unknown_kind");
                continue;
            };
            let action =
                if act.comes_in { Action::Set(act.actor) } else { Action::Unset(act.actor) };
            let (namespace, subject, id) = (scope.namespace, act.subject, act.id);
            let event = Event { namespace, kind, subject, action, actor: Some(act.actor), id };
            self.take(kinds, (offset, index), &event);
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
            Ok(event) => self.take(kinds, place, &event),
            Err(error) => self.refuse(place, error.code()),
        }
    }

    /// All kinds of the world's resets are declared.
    fn reset(&mut self, offset: Offset, reset: Reset) {
        let (partition, partitions) = self.place;
        let subject = &reset.counter.subject;
        let is_home = route(&subject.namespace, &subject.subject, 0, partitions) == partition;
        let generation = match reset.generation {
            Some(generation) => generation,
            None if is_home => (1 << 44) + offset.0 + 1,
            None => return self.refuse((offset, 0), "misrouted"),
        };
        if generation <= self.generation(&reset.counter, AsOf(u64::MAX)) {
            return;
        }
        self.generations.entry(reset.counter.clone()).or_default().push((offset, generation));
        self.totals.entry(reset.counter.clone()).or_default().push((offset, 0));
        if &*reset.counter.kind == "like" {
            let steps = self.sets.entry(reset.counter).or_default();
            let spilled = steps.last().and_then(|(_, state)| state.spilled);
            let spilled = spilled.map(|_| offset.as_of());
            steps.push((offset, SetState { members: BTreeSet::new(), spilled }));
        }
    }

    /// A counter's generation, taking in every record below `as_of`.
    pub(crate) fn generation(&self, counter: &CounterId, as_of: AsOf) -> u64 {
        let Some(steps) = self.generations.get(counter) else { return 0 };
        let passed = steps.partition_point(|(offset, _)| as_of.covers(*offset));
        passed.checked_sub(1).map_or(0, |last| steps[last].1)
    }

    fn refuse(&mut self, place: (Offset, u32), code: &str) {
        self.dead_letters.insert(place, code.into());
    }

    /// An event that says nothing wrong.
    fn take(&mut self, kinds: &Kinds, place: (Offset, u32), event: &Event<'_>) {
        let (partition, partitions) = self.place;
        let home = route(event.namespace, event.subject, event.slot(), partitions);
        if event.is_stateful() && home != partition {
            return self.refuse(place, "misrouted");
        }
        let name = CounterId::new(event.namespace, &event.kind.name, event.subject);
        let Ok(counter) = name else { return };
        if event.id.is_some_and(|id| self.is_repeat(kinds.retry_window(), &counter, id)) {
            return;
        }
        match event.action {
            Action::Add(delta) => self.add(place, counter, delta),
            Action::Set(actor) => self.act(place, counter, actor, true),
            Action::Unset(actor) => self.act(place, counter, actor, false),
        }
    }

    /// Whether the id is among the newest ones, and not too long ago.
    fn is_repeat(&mut self, window: RetryWindow, counter: &CounterId, id: &str) -> bool {
        let newest = self.ids.iter().rev().take(window.ids);
        let before = newest.clone().find(|(c, i, _)| c == counter && i == id);
        let is_repeat = before.is_some_and(|(.., at_ms)| self.now_ms - at_ms <= window.span_ms);
        self.ids.push((counter.clone(), id.to_owned(), self.now_ms));
        is_repeat
    }

    fn act(&mut self, place: (Offset, u32), counter: CounterId, actor: &str, comes_in: bool) {
        let steps = self.sets.entry(counter.clone()).or_default();
        let mut state = steps.last().map(|(_, state)| state.clone()).unwrap_or_default();
        let changed =
            if comes_in { state.members.insert(actor.into()) } else { state.members.remove(actor) };
        if !changed {
            return;
        }
        let total = i64::try_from(state.members.len()).expect("few");
        let totals = self.totals.entry(counter).or_default();
        steps.retain(|(offset, _)| *offset != place.0);
        totals.retain(|(offset, _)| *offset != place.0);
        steps.push((place.0, state));
        totals.push((place.0, total));
    }

    fn add(&mut self, place: (Offset, u32), counter: CounterId, delta: i64) {
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

    /// Who is in, taking in every record below `as_of`.
    pub(crate) fn set(&self, counter: &CounterId, as_of: AsOf) -> SetState {
        let Some(steps) = self.sets.get(counter) else { return SetState::default() };
        let passed = steps.partition_point(|(offset, _)| as_of.covers(*offset));
        passed.checked_sub(1).map(|last| steps[last].1.clone()).unwrap_or_default()
    }

    /// Whether the actor ever was in, or out.
    pub(crate) fn ever_in(&self, counter: &CounterId, actor: &str, is_in: bool) -> bool {
        let was = |(_, state): &(Offset, SetState)| state.members.contains(actor) == is_in;
        !is_in || self.sets.get(counter).is_some_and(|steps| steps.iter().any(was))
    }

    /// Every counter of actors, and all who ever were in.
    pub(crate) fn actors(&self) -> Vec<(CounterId, BTreeSet<Box<str>>)> {
        let all = |steps: &Vec<(Offset, SetState)>| {
            steps.iter().flat_map(|(_, state)| state.members.iter().cloned()).collect()
        };
        self.sets.iter().map(|(counter, steps)| (counter.clone(), all(steps))).collect()
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
