//! The engine's rules, one by one.

use bytes::Bytes;
use tally_log::Record;
use tally_proto::{ContentType, CounterId, Fact, Lane, Members};

use super::*;

mod likes;
mod resets;
mod retries;

const LIMITS: EngineLimits =
    EngineLimits { counters: 100, pending_events: 1_000, dead_letter_bytes: 10_000 };

fn engine(checkpoint: Option<Checkpoint>) -> Engine {
    let kinds = Arc::new(Kinds::built_in());
    Engine::resume((Partition(3), 64), Epoch::FIRST, kinds, LIMITS, checkpoint)
}

fn record(offset: u64, json: &str) -> Record {
    Record {
        offset: Offset(offset),
        append_time_ms: 1_000 + i64::try_from(offset).unwrap(),
        key: Bytes::new(),
        value: Bytes::copy_from_slice(json.as_bytes()),
        content_type: ContentType::Json,
    }
}

fn view(offset: u64, subject: &str, delta: i64) -> Record {
    record(offset, &format!(r#"{{"kind":"view","subject":"{subject}","delta":{delta}}}"#))
}

fn counter(subject: &str) -> CounterId {
    CounterId::new("default", "view", subject).unwrap()
}

fn fact(as_of: u64, total: i64) -> Option<(Lane, Fact)> {
    let fact = Fact {
        epoch: Epoch::FIRST,
        as_of: AsOf(as_of),
        generation: 0,
        total,
        members: Members::None,
    };
    Some((Lane(0), fact))
}

fn checkpoint(as_of: u64) -> Checkpoint {
    let last = view(as_of - 1, "x", 1).fingerprint();
    let as_of = AsOf(as_of);
    Checkpoint { epoch: Epoch::FIRST, as_of, last: Some(last), window_from: as_of }
}

/// What a flush writes: subject, as-of, total, by subject.
fn written(flush: &Flush) -> Vec<(&str, u64, i64)> {
    let mut rows: Vec<_> = flush
        .rows
        .iter()
        .map(|row| (&*row.counter.subject.subject, row.fact.as_of.0, row.fact.total))
        .collect();
    rows.sort_unstable();
    rows
}

fn load_all_absent(engine: &mut Engine) {
    for counter in engine.take_loads(usize::MAX) {
        engine.loaded(&counter, None).unwrap();
    }
}

#[test]
fn a_fact_takes_in_every_record_below_its_as_of() {
    let mut engine = engine(None);
    assert_eq!(engine.fold(&[view(0, "a", 2), view(1, "b", 1), view(2, "a", 3)]), Ok(Folded::All));
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 3, 5), ("b", 3, 1)]);
    assert_eq!(flush.checkpoint.unwrap().as_of, AsOf(3));
    engine.flushed(true);
    assert_eq!(engine.durable(), AsOf(3));
    assert_eq!(engine.begin_flush(), None, "an idle partition writes nothing");
}

#[test]
fn a_record_that_the_base_holds_is_not_counted_again() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[view(10, "a", 1), view(11, "a", 1), view(12, "a", 1)]).unwrap();
    assert_eq!(engine.take_loads(10), [counter("a")]);
    engine.loaded(&counter("a"), fact(12, 100)).unwrap();
    engine.fold(&[view(13, "a", 1)]).unwrap();
    assert_eq!(written(&engine.begin_flush().unwrap()), [("a", 14, 102)]);
}

#[test]
fn a_base_newer_than_the_checkpoint_is_written_again_under_its_own_as_of() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[view(10, "a", 1)]).unwrap();
    engine.take_loads(1);
    engine.loaded(&counter("a"), fact(50, 7)).unwrap();
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 50, 7)]);
    assert_eq!(flush.checkpoint.unwrap().as_of, AsOf(11));
}

#[test]
fn a_base_below_the_checkpoint_is_not_written_again() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[record(10, "poison"), view(11, "a", 1)]).unwrap();
    engine.take_loads(1);
    engine.loaded(&counter("a"), fact(10, 7)).unwrap();
    assert_eq!(written(&engine.begin_flush().unwrap()), [("a", 12, 8)]);
}

#[test]
fn no_checkpoint_passes_an_event_that_waits_for_its_base() {
    let mut engine = engine(None);
    engine.fold(&[view(0, "a", 1)]).unwrap();
    load_all_absent(&mut engine);
    engine.fold(&[view(1, "b", 1)]).unwrap();
    engine.fold(&[view(2, "a", 1)]).unwrap();
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 3, 2)]);
    assert_eq!(flush.checkpoint.unwrap().as_of, AsOf(1));
    engine.flushed(true);
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("b", 3, 1)]);
    assert_eq!(flush.checkpoint.unwrap().as_of, AsOf(3));
}

#[test]
fn a_flush_that_failed_is_repeated_with_what_came_since() {
    let mut engine = engine(None);
    engine.fold(&[view(0, "a", 1), view(1, "b", 1)]).unwrap();
    load_all_absent(&mut engine);
    let first = engine.begin_flush().unwrap();
    engine.fold(&[view(2, "a", 1)]).unwrap();
    assert_eq!(engine.begin_flush(), None, "one flush at a time");
    engine.flushed(false);
    assert_eq!(engine.durable(), AsOf::ZERO);
    let second = engine.begin_flush().unwrap();
    assert_eq!(written(&first), [("a", 2, 1), ("b", 2, 1)]);
    assert_eq!(written(&second), [("a", 3, 2), ("b", 3, 1)]);
    assert_eq!(second.checkpoint.unwrap().as_of, AsOf(3));
}

#[test]
fn a_hole_is_believed_only_when_the_log_says_so() {
    let mut engine = engine(None);
    let records = [view(0, "a", 1), view(3, "a", 1)];
    let hole = |expected| Ok(Folded::Hole { expected: Offset(expected) });
    assert_eq!(engine.fold(&records), hole(1));
    assert_eq!(engine.fold(&records), hole(1), "to hear it twice is no proof");
    engine.skip_hole(Offset(1), Offset(2));
    assert_eq!(engine.fold(&[view(3, "a", 1)]), hole(1), "the record at 2 is missing");
    engine.skip_hole(Offset(1), Offset(3));
    assert_eq!(engine.fold(&[view(3, "a", 1)]), Ok(Folded::All));
    assert_eq!(engine.next(), AsOf(4));
}

#[test]
fn what_was_folded_before_is_left_out() {
    let mut engine = engine(None);
    engine.fold(&[view(0, "a", 1), view(1, "a", 1)]).unwrap();
    engine.fold(&[view(0, "a", 1), view(1, "a", 1), view(2, "a", 1)]).unwrap();
    load_all_absent(&mut engine);
    assert_eq!(written(&engine.begin_flush().unwrap()), [("a", 3, 3)]);
}

#[test]
fn poison_is_set_aside_and_the_fold_goes_on() {
    let mut engine = engine(None);
    let array = r#"[{"kind":"view","subject":"a"},{"kind":"nope","subject":"a"},7]"#;
    engine.fold(&[record(0, "not json"), record(1, array), record(2, "")]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    let letters: Vec<_> =
        flush.dead_letters.iter().map(|l| (l.offset.0, l.index, &*l.code)).collect();
    let expected =
        [(0, 0, "malformed"), (1, 1, "unknown_kind"), (1, 2, "malformed"), (2, 0, "empty")];
    assert_eq!(letters, expected);
    assert_eq!(written(&flush), [("a", 3, 1)]);
    engine.flushed(false);
    assert_eq!(engine.begin_flush().unwrap().dead_letters, flush.dead_letters);
}

#[test]
fn an_overflow_is_set_aside_and_never_wraps() {
    let mut engine = engine(None);
    engine.fold(&[view(0, "a", 5)]).unwrap();
    engine.take_loads(1);
    engine.loaded(&counter("a"), fact(0, i64::MAX - 4)).unwrap();
    let flush = engine.begin_flush().unwrap();
    assert_eq!(flush.dead_letters[0].code.as_ref(), "overflow");
    assert_eq!(
        flush.dead_letters[0].value,
        r#"{"namespace":"default","kind":"view","subject":"a","delta":5}"#
    );
    assert!(flush.rows.is_empty());
}

#[test]
fn a_record_of_a_newer_build_stops_the_partition_before_it() {
    let mut engine = engine(None);
    let newer = Record { content_type: ContentType::Unknown, ..record(1, "?") };
    assert_eq!(engine.fold(&[view(0, "a", 1), newer]), Err(Stop::NewerRecord(Offset(1))));
    assert_eq!(engine.next(), AsOf(1));
}

#[test]
fn a_fact_of_another_epoch_stops_the_partition() {
    let mut engine = engine(None);
    engine.fold(&[view(0, "a", 1)]).unwrap();
    engine.take_loads(1);
    let (lane, mut fact) = fact(9, 9).unwrap();
    fact.epoch = Epoch::new(2).unwrap();
    let stopped = engine.loaded(&counter("a"), Some((lane, fact)));
    assert!(matches!(stopped, Err(Stop::OtherEpoch { .. })));
}

#[test]
fn memory_is_bounded_by_evicting_what_is_clean() {
    let mut engine = engine(None);
    for n in 0..500 {
        engine.fold(&[view(n, &format!("s{n}"), 1)]).unwrap();
        load_all_absent(&mut engine);
        if n % 50 == 49 {
            engine.begin_flush().unwrap();
            engine.flushed(true);
        }
    }
    assert!(engine.counters() <= 200, "{}", engine.counters());
    engine.fold(&[view(500, "s0", 1)]).unwrap();
    assert_eq!(engine.take_loads(10), [counter("s0")], "an evicted counter is loaded again");
}

#[test]
fn an_engine_that_cannot_evict_says_that_it_is_full() {
    let mut engine = engine(None);
    for n in 0..200 {
        assert!(!engine.is_full());
        engine.fold(&[view(n, &format!("s{n}"), 1)]).unwrap();
    }
    assert!(engine.is_full());
}
