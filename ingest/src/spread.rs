//! Spread: over how many slots the plain deltas of a counter are dealt.
//!
//! A counter takes one slot while it is cold, and 2, 4, 8 and more as its rate grows; it draws back
//! when it was calm for a while. Each ingest decides by what it sees itself, and nobody else has to
//! know: a delta may go to any partition. Pure: time and load are arguments.
//!
//! Invariants: memory is bounded, whatever is counted (a sketch of the heaviest counters, and one
//! place for each that is spread, with what createCounter said of it); what has a slot of its own (an actor, an id) keeps it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tally_proto::{CounterId, Event, Partition, ShardChoice, SubjectId, route, slot_of};

/// Rates are measured over so long.
const WINDOW: Duration = Duration::from_millis(500);

/// A counter whose rate would do with less draws back by half after so long.
const CALM: Duration = Duration::from_secs(10);

/// One event of so many is looked at, and stands for all of them. Chance says which: whoever sends
/// its counters in turn is measured right, too.
const SAMPLE: u64 = 8;

/// Places of the sketch: rates are right to 3.5 / 1,024 of all events.
const SKETCH: usize = 1_024;

/// A counter is warm at so much of what one slot takes: then it is asked what createCounter said.
const WARM: u64 = 16;

/// What createCounter said is asked again after so long, and known of so many counters at most.
const LEAST_IS_NEWS: Duration = Duration::from_secs(60);
const MOST_LEAST: usize = 10_000;

/// What happens now, outside.
pub(crate) struct Now<'n> {
    /// Monotonic time.
    pub(crate) at: Duration,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: i64,
    /// Events that wait for a partition of the log.
    pub(crate) waiting: &'n dyn Fn(Partition) -> u64,
}

/// The spread of every hot counter.
pub(crate) struct Spreads {
    partitions: u32,
    /// Events a second that one slot takes.
    slot_rate: u64,
    rates: FrequentItemsSketch<u64>,
    window_began: Duration,
    /// Events until the next one is looked at.
    skip: u64,
    /// Counters with more than one slot, by the hash of their names: two that share a hash would
    /// share their spread, which does no harm.
    hot: HashMap<u64, Hot>,
    /// The most slots that one has.
    widest: u32,
    /// What createCounter said of counters, as far as it was asked lately: the least spread.
    least: HashMap<u64, u32>,
    forget_least_at: Duration,
    /// Counters that are warm, and of which that is not known.
    asking: HashSet<u64>,
    warm: Vec<CounterId>,
    /// Slots that were picked for the request at hand: deltas on one counter are summed there.
    picked: HashMap<u64, u32>,
    /// Events that went to each partition lately.
    routed: Vec<u64>,
    rng: SmallRng,
    hasher: RandomState,
}

struct Hot {
    spread: u32,
    turn: u32,
    /// Since when less would do.
    calm_since: Option<Duration>,
}

impl Hot {
    fn new() -> Self {
        Hot { spread: 1, turn: 0, calm_since: None }
    }
}

impl Spreads {
    pub(crate) fn new(partitions: u32, slot_rate: u64, seed: u64) -> Self {
        Spreads {
            partitions,
            slot_rate: slot_rate.max(1),
            rates: sketch(),
            window_began: Duration::ZERO,
            skip: SAMPLE,
            hot: HashMap::new(),
            widest: 1,
            least: HashMap::new(),
            forget_least_at: Duration::ZERO,
            asking: HashSet::new(),
            warm: Vec::new(),
            picked: HashMap::new(),
            routed: vec![0; partitions as usize],
            rng: SmallRng::seed_from_u64(seed),
            hasher: RandomState::new(),
        }
    }

    /// How many counters have more than one slot, and the most that one has.
    pub(crate) fn widest(&self) -> (usize, u32) {
        (self.hot.len(), self.widest)
    }

    /// Counters of which somebody should ask what createCounter said.
    pub(crate) fn take_warm(&mut self) -> Vec<CounterId> {
        std::mem::take(&mut self.warm)
    }

    /// What createCounter said: so many slots at least.
    pub(crate) fn set_least(&mut self, counter: &CounterId, shards: u32) {
        let SubjectId { namespace, subject } = &counter.subject;
        let hash = self.hasher.hash_one((&**namespace, &*counter.kind, &**subject));
        if self.least.len() >= MOST_LEAST {
            self.least.clear(); // it is asked for again
        }
        let least = shards.clamp(1, self.partitions);
        self.least.insert(hash, least);
        if least > 1 && self.hot.len() < MOST_LEAST {
            let hot = self.hot.entry(hash).or_insert_with(Hot::new);
            hot.spread = hot.spread.max(least);
            self.widest = self.widest.max(hot.spread);
        }
    }

    /// The partition of each event of one request.
    pub(crate) fn deal<'e>(
        &mut self,
        events: &'e [Event<'e>],
        now: &Now<'_>,
    ) -> Vec<(Partition, &'e Event<'e>)> {
        if now.at.saturating_sub(self.window_began) >= WINDOW {
            self.measure(now.at);
        }
        self.picked.clear();
        let deal = |event: &'e Event<'e>| {
            let slot = if event.is_stateful() { event.slot() } else { self.slot(event, now) };
            let partition = self.partition(event, slot);
            if let Some(routed) = self.routed.get_mut(partition.0 as usize) {
                *routed += 1;
            }
            (partition, event)
        };
        events.iter().map(deal).collect()
    }

    fn partition(&self, event: &Event<'_>, slot: u32) -> Partition {
        route(event.namespace, event.subject, slot, self.partitions)
    }

    /// The slot of a plain delta.
    fn slot(&mut self, event: &Event<'_>, now: &Now<'_>) -> u32 {
        self.skip -= 1;
        let is_sample = self.skip == 0;
        if is_sample {
            self.skip = self.rng.random_range(1..2 * SAMPLE); // SAMPLE on average
        }
        if !is_sample && self.hot.is_empty() {
            return 0; // nearly always
        }
        let hash = self.hasher.hash_one((event.namespace, &*event.kind.name, event.subject));
        if is_sample {
            self.rates.update_with_count(hash, SAMPLE);
            if self.asking.remove(&hash) {
                let name = CounterId::new(event.namespace, &event.kind.name, event.subject);
                self.warm.extend(name);
            }
        }
        let Some(hot) = self.hot.get_mut(&hash) else { return 0 };
        let spread = hot.spread;
        if event.kind.shard_choice == ShardChoice::UserHash
            && let Some(actor) = event.actor
        {
            return slot_of(actor, spread);
        }
        if let Some(slot) = self.picked.get(&hash) {
            return *slot;
        }
        hot.turn = (hot.turn + 1) % spread;
        let slot = match event.kind.shard_choice {
            ShardChoice::RoundRobin | ShardChoice::UserHash => hot.turn,
            ShardChoice::Random => self.rng.random_range(0..spread),
            ShardChoice::Time => {
                u32::try_from(now.unix_ms.div_euclid(1_000) % i64::from(spread)).unwrap_or(0)
            }
            ShardChoice::LeastLoaded => self.less_loaded(event, spread, now),
        };
        self.picked.insert(hash, slot);
        slot
    }

    /// The better of two slots that chance picks: nearly as good as the best of all, and cheap
    /// (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).
    fn less_loaded(&mut self, event: &Event<'_>, spread: u32, now: &Now<'_>) -> u32 {
        let slots = [self.rng.random_range(0..spread), self.rng.random_range(0..spread)];
        let load = |slot: &u32| {
            let partition = self.partition(event, *slot);
            let routed = self.routed.get(partition.0 as usize).copied().unwrap_or(0);
            (now.waiting)(partition).saturating_add(routed)
        };
        slots.into_iter().min_by_key(load).unwrap_or(0)
    }

    /// A window has ended: hot counters get more slots at once, and give them back slowly.
    fn measure(&mut self, now: Duration) {
        let millis = now.saturating_sub(self.window_began).as_millis().max(1);
        let rate = |events: u64| u64::try_from(u128::from(events) * 1_000 / millis).unwrap_or(0);
        let rates = std::mem::replace(&mut self.rates, sketch());
        self.window_began = now;
        if now >= self.forget_least_at {
            self.least.clear();
            self.forget_least_at = now + LEAST_IS_NEWS;
        }
        self.asking.clear();
        for row in rates.frequent_items(ErrorType::NoFalsePositives) {
            let rate = rate(row.lower_bound());
            if rate >= self.slot_rate / WARM && !self.least.contains_key(row.item()) {
                self.asking.insert(*row.item());
            }
            let wanted = self.wanted(rate);
            if wanted > 1 {
                let hot = self.hot.entry(*row.item()).or_insert_with(Hot::new);
                hot.spread = hot.spread.max(wanted);
            }
        }
        for (counter, hot) in &mut self.hot {
            let least = self.least.get(counter).copied().unwrap_or(1);
            if hot.spread <= least {
                continue;
            }
            // Less must do with room to spare, or it would go to and fro.
            let rate = rate(rates.estimate(counter));
            let half = u64::from(hot.spread / 2) * self.slot_rate;
            if rate > half - half / 4 {
                hot.calm_since = None;
            } else if now.saturating_sub(*hot.calm_since.get_or_insert(now)) >= CALM {
                hot.spread = (hot.spread / 2).max(least);
                hot.calm_since = Some(now);
            }
        }
        self.hot.retain(|_, hot| hot.spread > 1);
        self.widest = self.hot.values().map(|hot| hot.spread).max().unwrap_or(1);
        self.routed.iter_mut().for_each(|events| *events /= 2);
    }

    /// How many slots a rate needs: a power of two, and no more than there are partitions.
    fn wanted(&self, rate: u64) -> u32 {
        let slots = u32::try_from(rate.div_ceil(self.slot_rate)).unwrap_or(u32::MAX / 2);
        slots.next_power_of_two().min(self.partitions)
    }
}

fn sketch() -> FrequentItemsSketch<u64> {
    FrequentItemsSketch::new(SKETCH).expect("its size is a power of two")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tally_proto::{Kinds, RawEvent};

    use super::*;

    const PARTITIONS: u32 = 64;

    /// Deals `rate` events a second of one counter for a time, in requests of 10; says to which
    /// partitions they went at last.
    fn burst(spreads: &mut Spreads, from: Duration, time: Duration, rate: u64) -> usize {
        let kinds = Kinds::built_in();
        let raw = RawEvent::parse(r#"{"kind":"view","subject":"viral"}"#).unwrap();
        let events = [raw.check(&kinds).unwrap(); 10];
        let mut last = BTreeMap::new();
        let requests = rate * time.as_millis() as u64 / 10_000;
        for request in 0..requests {
            let at = from + time.mul_f64(request as f64 / requests as f64);
            let now = Now { at, unix_ms: 0, waiting: &|_| 0 };
            let dealt = spreads.deal(&events, &now);
            assert!(dealt.iter().all(|(partition, _)| *partition == dealt[0].0), "they are summed");
            if at >= from + time / 2 {
                *last.entry(dealt[0].0).or_insert(0) += 1;
            }
        }
        last.len()
    }

    #[test]
    fn a_hot_counter_takes_more_slots_and_gives_them_back_when_it_is_calm() {
        let mut spreads = Spreads::new(PARTITIONS, 1_000, 1);
        let second = Duration::from_secs(1);
        assert_eq!(burst(&mut spreads, second, second * 4, 800), 1);
        assert_eq!(spreads.widest(), (0, 1));
        let partitions = burst(&mut spreads, second * 5, second * 4, 15_000);
        assert_eq!(spreads.widest(), (1, 16));
        assert!((9..=16).contains(&partitions), "{partitions}: some slots share a partition");
        burst(&mut spreads, second * 9, second * 20, 7_000);
        assert_eq!(spreads.widest(), (1, 16), "8 slots would be nearly full");
        burst(&mut spreads, second * 29, second * 50, 500);
        assert_eq!(spreads.widest(), (0, 1));
        assert_eq!(burst(&mut spreads, second * 80, second, 500), 1);
    }

    #[test]
    fn a_counter_that_was_created_with_shards_has_so_many_at_least() {
        let mut spreads = Spreads::new(PARTITIONS, 1_000, 1);
        let second = Duration::from_secs(1);
        burst(&mut spreads, second, second * 2, 20);
        assert_eq!(spreads.take_warm(), [], "it is cold: nobody asks");
        burst(&mut spreads, second * 3, second * 2, 400);
        let counter = CounterId::new("default", "view", "viral").unwrap();
        assert_eq!(spreads.take_warm().first(), Some(&counter));
        spreads.set_least(&counter, 8);
        assert!(burst(&mut spreads, second * 5, second * 20, 400) >= 5);
        assert_eq!(spreads.widest(), (1, 8), "however calm it is");
        assert_eq!(spreads.take_warm(), [], "it is known");
        burst(&mut spreads, second * 26, second * 3, 15_000);
        assert_eq!(spreads.widest(), (1, 16), "and more when it is hot");
        burst(&mut spreads, second * 70, second * 3, 400);
        assert_eq!(spreads.take_warm().first(), Some(&counter), "it is asked again now and then");
    }

    #[test]
    fn a_spread_never_passes_the_partitions() {
        let mut spreads = Spreads::new(6, 1_000, 1);
        burst(&mut spreads, Duration::from_secs(1), Duration::from_secs(3), 50_000);
        assert_eq!(spreads.widest(), (1, 6));
    }

    #[test]
    fn a_million_cold_counters_take_a_slot_each_and_no_memory() {
        let kinds = Kinds::built_in();
        let mut spreads = Spreads::new(PARTITIONS, 1_000, 1);
        for n in 0..1_000_000u64 {
            let json = format!(r#"{{"kind":"view","subject":"cold:{n}"}}"#);
            let raw = RawEvent::parse(&json).unwrap();
            let events = [raw.check(&kinds).unwrap()];
            let now = Now { at: Duration::from_micros(n * 2), unix_ms: 0, waiting: &|_| 0 };
            let home = route("default", &format!("cold:{n}"), 0, PARTITIONS);
            assert_eq!(spreads.deal(&events, &now)[0].0, home);
        }
        assert_eq!(spreads.widest(), (0, 1));
        assert!(spreads.rates.num_active_items() < SKETCH);
    }

    #[test]
    fn each_choice_picks_slots_in_its_own_way() {
        let kinds = Kinds::built_in();
        let picks = |choice: ShardChoice| -> Vec<Partition> {
            let mut kind = kinds.get("view").unwrap().clone();
            kind.shard_choice = choice;
            let mut spreads = Spreads::new(PARTITIONS, 1_000, 1);
            burst(&mut spreads, Duration::from_secs(1), Duration::from_secs(2), 50_000);
            let pick = |n: i64| {
                let actor = format!("user:{}", n % 2);
                let json = format!(r#"{{"kind":"view","subject":"viral","actor":"{actor}"}}"#);
                let raw = RawEvent::parse(&json).unwrap();
                let mut event = raw.check(&kinds).unwrap();
                event.kind = &kind;
                let busy = route("default", "viral", 3, PARTITIONS);
                let waiting = |partition: Partition| if partition == busy { 1_000_000 } else { 0 };
                let now = Now { at: Duration::from_secs(3), unix_ms: n * 10, waiting: &waiting };
                spreads.deal(&[event], &now)[0].0
            };
            (0..200).map(pick).collect()
        };
        let different = |picks: &[Partition]| {
            let mut picks = picks.to_vec();
            picks.sort();
            picks.dedup();
            picks.len()
        };
        let round_robin = picks(ShardChoice::RoundRobin);
        assert_eq!(round_robin[..64], round_robin[64..128], "slot by slot");
        assert!(different(&round_robin) > 30 && different(&picks(ShardChoice::Random)) > 30);
        assert_eq!(different(&picks(ShardChoice::Time)), 2, "two seconds");
        assert_eq!(different(&picks(ShardChoice::UserHash)), 2, "two users");
        let least_loaded = picks(ShardChoice::LeastLoaded);
        assert!(different(&least_loaded) > 30);
        let busy = route("default", "viral", 3, PARTITIONS);
        let busy = least_loaded.iter().filter(|partition| **partition == busy).count();
        assert!(busy < 3, "only where chance picked it twice: {busy}");
    }
}
