//! A counter begins anew.

use tally_proto::{Epoch, Reset, Stamp};

use super::*;

fn reset(offset: u64, kind: &str, generation: Option<u64>) -> Record {
    let counter = CounterId::new("default", kind, "a").unwrap();
    let value = Reset { counter, generation }.encode();
    Record { value, content_type: ContentType::Control, ..record(offset, "") }
}

/// The one partition of a log.
fn engine(partitions: u32) -> Engine {
    let kinds = Arc::new(Kinds::built_in());
    Engine::resume((Partition(0), partitions), Epoch::FIRST, kinds, LIMITS, None)
}

#[test]
fn what_stood_before_a_reset_counts_no_more() {
    let mut engine = engine(1);
    engine.fold(&[view(0, "a", 5), reset(1, "view", None), view(2, "a", 1)]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 3, 1)]);
    let generation = Stamp::new(Epoch::FIRST, AsOf(2)).unwrap().raw().unsigned_abs();
    assert_eq!(flush.rows[0].fact.generation, generation);
    assert_eq!(flush.resets[0].generation, Some(generation), "to be carried everywhere");
}

#[test]
fn a_reset_is_carried_until_a_flush_has_succeeded() {
    let mut engine = engine(1);
    engine.fold(&[reset(0, "view", None)]).unwrap();
    load_all_absent(&mut engine);
    assert_eq!(engine.begin_flush().unwrap().resets.len(), 1);
    engine.flushed(false);
    assert_eq!(engine.begin_flush().unwrap().resets.len(), 1);
    engine.flushed(true);
    assert_eq!(engine.begin_flush(), None);
}

#[test]
fn a_reset_that_is_not_newer_changes_nothing() {
    let mut engine = engine(1);
    let records = [
        view(0, "a", 5),
        reset(1, "view", Some(900)),
        view(2, "a", 1),
        reset(3, "view", Some(900)),
        reset(4, "view", Some(7)),
        view(5, "a", 1),
    ];
    engine.fold(&records).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 6, 2)]);
    assert!(flush.resets.is_empty(), "it began elsewhere");
}

#[test]
fn a_base_that_holds_the_reset_is_left_alone() {
    let mut engine = engine(1);
    engine.fold(&[view(0, "a", 5), reset(1, "view", Some(900)), view(2, "a", 1)]).unwrap();
    engine.take_loads(9);
    let mut base = fact(3, 40);
    base.iter_mut().for_each(|(_, fact)| fact.generation = 901);
    engine.loaded(&counter("a"), base).unwrap();
    assert_eq!(written(&engine.begin_flush().unwrap()), [("a", 3, 40)]);
}

#[test]
fn a_set_that_begins_anew_has_nobody_in() {
    let mut engine = engine(1);
    let like = |offset, actor: &str| {
        record(offset, &format!(r#"{{"kind":"like","subject":"a","actor":"{actor}"}}"#))
    };
    engine.fold(&[like(0, "x"), like(1, "y"), reset(2, "like", None), like(3, "y")]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 4, 1)]);
    assert_eq!(flush.rows[0].fact.members, Members::Inline(["y".into()].into()));
}

#[test]
fn a_reset_that_begins_in_the_wrong_partition_is_set_aside() {
    let away = (2..).find(|n| tally_proto::route("default", "a", 0, *n) != Partition(0)).unwrap();
    let mut engine = engine(away);
    engine.fold(&[view(0, "a", 5), reset(1, "view", None)]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(&*flush.dead_letters[0].code, "misrouted");
    assert_eq!(written(&flush), [("a", 2, 5)]);
}
