//! The retry window of one partition: its memory, and the time to read it again after a restart.

use std::sync::Arc;
use std::time::Instant;

use tally_aggregator::engine::{Engine, EngineLimits};
use tally_log::Record;
use tally_proto::{AsOf, Checkpoint, Epoch, Kinds, Partition, RetryWindow};

use crate::{Line, best, fold, input};

const IDS: usize = RetryWindow::BUILT_IN.ids;

/// Records that fill a window, all of one counter, and an engine that reads them again.
fn filled() -> (Vec<Record>, impl Fn(&[Record]) -> Engine) {
    let records = input::packed_records_once(&vec!["video:1".to_owned(); IDS], 500);
    let last = records.last().unwrap().fingerprint();
    let as_of = last.offset.as_of();
    let window_from = AsOf::ZERO;
    let checkpoint = Checkpoint { epoch: Epoch::FIRST, as_of, last: Some(last), window_from };
    let read = move |records: &[Record]| {
        let limits =
            EngineLimits { counters: 1_000, pending_events: 1_000, dead_letter_bytes: 1_000 };
        let kinds = Arc::new(Kinds::built_in());
        let place = (Partition(0), 1);
        let mut engine = Engine::resume(place, Epoch::FIRST, kinds, limits, Some(checkpoint));
        engine.fold(records).unwrap();
        assert!(!engine.is_refilling() && engine.counters() == 0);
        engine
    };
    (records, read)
}

pub(crate) fn memory() -> Line {
    let (records, read) = filled();
    drop(read(&records)); // what is used once and kept by the allocator is not the window's
    let before = fold::resident();
    let engines: Vec<Engine> = (0..32).map(|_| read(&records)).collect();
    let megabytes = (fold::resident() - before) / engines.len() as f64 / 1e6;
    Line {
        name: "retry window of a partition",
        reached: format!("{megabytes:.1} MB"),
        limit: format!("{IDS} ids in 8 MB"),
        ratio: 8.0 / megabytes,
        wanted: 1.0,
    }
}

pub(crate) fn refill() -> Line {
    let (records, read) = filled();
    let timed = || {
        let started = Instant::now();
        drop(read(&records));
        started.elapsed()
    };
    let took = best(5, timed).as_secs_f64();
    let reached = IDS as f64 / took / 1e6;
    Line {
        name: "reading a full window again",
        reached: format!("{:.0} ms, {reached:.1} M ids/s", took * 1e3),
        limit: "1 M ids/s".into(),
        ratio: reached,
        wanted: 1.0,
    }
}
