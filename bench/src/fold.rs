//! The fold of one partition on one core, and the memory of its rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tally_aggregator::engine::{Engine, EngineLimits};
use tally_log::Record;
use tally_proto::{Epoch, Kinds, Partition, RawEvent};

use crate::{Line, best, input};

const EVENTS: usize = 2_000_000;
const SUBJECTS: u64 = 100_000;

fn engine() -> Engine {
    let limits =
        EngineLimits { counters: usize::MAX / 4, pending_events: usize::MAX, dead_letter_bytes: 1 };
    Engine::resume((Partition(0), 1), Epoch::FIRST, Arc::new(Kinds::built_in()), limits, None)
}

fn load_bases(engine: &mut Engine) {
    for counter in engine.take_loads(usize::MAX) {
        engine.loaded(&counter, None).unwrap();
    }
}

/// The time to fold all records when the counters are in memory, and their facts to be flushed.
fn fold(records: &[Record]) -> Duration {
    let mut engine = engine();
    let (warm, timed) = records.split_at(records.len() / 2);
    for batch in warm.chunks(500) {
        engine.fold(batch).unwrap();
        load_bases(&mut engine);
    }
    engine.begin_flush();
    engine.flushed(true);
    let started = Instant::now();
    for batch in timed.chunks(500) {
        engine.fold(batch).unwrap();
        load_bases(&mut engine);
    }
    let took = started.elapsed();
    assert!(engine.take_folded_events() > 0 && engine.dirty() > 0);
    took
}

fn rate(events: usize, took: Duration) -> f64 {
    events as f64 / took.as_secs_f64() / 1e6
}

pub(crate) fn packed() -> Line {
    let subjects = input::subjects(2 * EVENTS, SUBJECTS);
    let records = input::packed_records(&subjects, 500);
    let reached = rate(EVENTS, best(5, || fold(&records)));
    Line {
        name: "fold, packed records of 500",
        reached: format!("{reached:.1} M events/s"),
        limit: "8 M events/s".into(),
        ratio: reached / 8.0,
        wanted: 1.0,
    }
}

/// What cannot be left out: parse each record, and count it in a hash map.
fn bare(records: &[Record]) -> Duration {
    let mut counts: HashMap<String, i64, foldhash::fast::FixedState> = HashMap::default();
    let (warm, timed) = records.split_at(records.len() / 2);
    let mut count = |records: &[Record]| {
        for record in records {
            let event = RawEvent::parse(std::str::from_utf8(&record.value).unwrap()).unwrap();
            let delta = event.delta.unwrap_or(1);
            match counts.get_mut(&*event.subject.0) {
                Some(count) => *count += delta,
                None => drop(counts.insert(event.subject.0.into_owned(), delta)),
            }
        }
    };
    count(warm);
    let started = Instant::now();
    count(timed);
    started.elapsed()
}

pub(crate) fn json() -> Line {
    let records = input::json_records(&input::subjects(2 * EVENTS, SUBJECTS));
    let reached = rate(EVENTS, best(5, || fold(&records)));
    let limit = rate(EVENTS, best(5, || bare(&records)));
    Line {
        name: "fold, JSON records",
        reached: format!("{reached:.2} M events/s"),
        limit: format!("{limit:.2} M parse + count/s"),
        ratio: reached / limit,
        wanted: 0.8,
    }
}

/// Resident bytes of this process.
pub(crate) fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

pub(crate) fn memory() -> Line {
    const COUNTERS: usize = 10_000_000;
    let before = resident();
    let mut engine = engine();
    let mut key_bytes = 0;
    for first in (0..COUNTERS).step_by(500) {
        let subjects: Vec<String> = (first..first + 500).map(|n| format!("video:{n}")).collect();
        key_bytes += subjects.iter().map(String::len).sum::<usize>();
        let mut records = input::packed_records(&subjects, 500);
        records[0].offset = tally_proto::Offset((first / 500) as u64);
        engine.fold(&records).unwrap();
        load_bases(&mut engine);
        engine.begin_flush();
        engine.flushed(true);
    }
    let all = (resident() - before) / 1e9;
    let bytes = (resident() - before - key_bytes as f64) / COUNTERS as f64;
    assert_eq!(engine.counters(), COUNTERS);
    Line {
        name: "memory of 10 M live counters",
        reached: format!("{all:.2} GB, {bytes:.0} B + key"),
        limit: "1.5 GB".into(),
        ratio: 1.5 / all,
        wanted: 1.0,
    }
}
