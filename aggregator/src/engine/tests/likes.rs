//! Sets: an actor counts once.

use tally_proto::{Kind, LedgerEntry, Members, RetryWindow, Stamp, route};

use super::*;

const MOST_INLINE: usize = 2;

/// One partition, and a kind whose facts list two actors at most.
fn engine(checkpoint: Option<Checkpoint>) -> Engine {
    let built_in = Kinds::built_in();
    let kind = |name| Kind { most_inline: MOST_INLINE, ..built_in.get(name).unwrap().clone() };
    let kinds = Kinds::new(vec![kind("like"), kind("view")], RetryWindow::BUILT_IN);
    Engine::resume((Partition(0), 1), Epoch::FIRST, Arc::new(kinds), LIMITS, checkpoint)
}

/// A record of acts: `+a` comes in, `-a` goes out.
fn acts(offset: u64, acts: &[&str]) -> Record {
    let event = |act: &&str| {
        let op = if act.starts_with('+') { "set" } else { "unset" };
        format!(r#"{{"kind":"like","subject":"p","op":"{op}","actor":"{}"}}"#, &act[1..])
    };
    let events: Vec<String> = acts.iter().map(event).collect();
    record(offset, &format!("[{}]", events.join(",")))
}

fn like() -> CounterId {
    CounterId::new("default", "like", "p").unwrap()
}

/// A fact of the counter as the store would show it.
fn listed(as_of: u64, actors: &[&str]) -> Option<(Lane, Fact)> {
    let members: Vec<Box<str>> = actors.iter().map(|actor| (*actor).into()).collect();
    let total = i64::try_from(actors.len()).unwrap();
    let members = Members::Inline(members.into());
    Some((Lane(0), Fact { members, ..fact(as_of, total).unwrap().1 }))
}

fn spilled(as_of: u64, since: u64, total: i64) -> Option<(Lane, Fact)> {
    let members = Members::Spilled(Stamp::new(Epoch::FIRST, AsOf(since)).unwrap());
    Some((Lane(0), Fact { members, ..fact(as_of, total).unwrap().1 }))
}

/// What a flush says of the counter: as-of, total, who is listed.
fn said(flush: &Flush) -> (u64, i64, Option<Vec<String>>) {
    let fact = &flush.rows.first().expect("a fact").fact;
    let listed = match &fact.members {
        Members::Inline(members) => Some(members.iter().map(ToString::to_string).collect()),
        _ => None,
    };
    (fact.as_of.0, fact.total, listed)
}

fn ledger(rows: &[tally_store::LedgerRow]) -> Vec<(&str, u64, bool)> {
    rows.iter().map(|row| (&*row.actor, row.entry.as_of.0, row.entry.is_in)).collect()
}

/// Answers every question for entries from a list.
fn load_entries(engine: &mut Engine, known: &[(&str, u64, bool)]) {
    for (counter, actors) in engine.take_entry_loads(usize::MAX) {
        let entry = |actor: Box<str>| {
            let found = known.iter().find(|(name, ..)| *name == &*actor);
            let entry = found.map(|(_, as_of, is_in)| LedgerEntry {
                epoch: Epoch::FIRST,
                as_of: AsOf(*as_of),
                is_in: *is_in,
            });
            (actor, entry)
        };
        engine.entries_loaded(&counter, actors.into_iter().map(entry)).unwrap();
    }
}

#[test]
fn an_actor_counts_once_however_often_it_is_said() {
    let mut engine = engine(None);
    engine.fold(&[acts(0, &["+a", "+a"]), acts(1, &["+a"]), acts(2, &["-b", "+b", "+b"])]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(said(&flush), (3, 2, Some(vec!["a".into(), "b".into()])));
    assert!(flush.spills.is_empty() && flush.entries.is_empty(), "no ledger while they are few");
    engine.flushed(true);
    engine.fold(&[acts(3, &["-b"]), acts(4, &["-b", "-z"])]).unwrap();
    assert_eq!(said(&engine.begin_flush().unwrap()), (5, 1, Some(vec!["a".into()])));
}

#[test]
fn a_fact_is_dirty_when_a_member_changed_also_at_an_equal_total() {
    let mut engine = engine(Some(checkpoint(5)));
    engine.fold(&[acts(5, &["-a", "+b"])]).unwrap();
    assert_eq!(engine.take_loads(9), [like()]);
    engine.loaded(&like(), listed(4, &["a"])).unwrap();
    assert_eq!(said(&engine.begin_flush().unwrap()), (6, 1, Some(vec!["b".into()])));
}

#[test]
fn a_set_spills_at_the_end_of_the_record_that_brings_too_many() {
    let mut engine = engine(None);
    engine.fold(&[acts(0, &["+a", "+b"]), acts(1, &["+c", "+d", "-a"])]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(said(&flush), (2, 3, None));
    assert_eq!(flush.rows[0].fact.members, spilled(0, 2, 0).unwrap().1.members);
    assert_eq!(ledger(&flush.spills), [("b", 2, true), ("c", 2, true), ("d", 2, true)]);
    assert!(flush.entries.is_empty());
    engine.flushed(false);
    engine.fold(&[acts(2, &["-b"])]).unwrap();
    let flush = engine.begin_flush().unwrap();
    let list = [("b", 2, true), ("c", 2, true), ("d", 2, true)];
    assert_eq!(ledger(&flush.spills), list, "as of the spill, until it is acknowledged");
    assert_eq!(ledger(&flush.entries), [("b", 3, false)], "as of the last change");
    engine.flushed(true);
    assert_eq!(engine.begin_flush(), None);
}

#[test]
fn past_the_limit_an_act_waits_for_its_entry_and_the_fact_for_the_act() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[acts(10, &["+a"]), acts(11, &["+b"]), view(12, "v", 1)]).unwrap();
    engine.loaded(&like(), spilled(10, 5, 100)).unwrap();
    load_entries(&mut engine, &[("a", 7, true)]);
    engine.fold(&[acts(13, &["+new"])]).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    let like = flush.rows.iter().find(|row| &*row.counter.kind == "like").unwrap();
    assert_eq!((like.fact.as_of.0, like.fact.total), (13, 101), "b is new, a was in");
    assert_eq!(flush.checkpoint.unwrap().as_of, AsOf(13), "the act at 13 waits");
    engine.flushed(true);
    load_entries(&mut engine, &[("new", 3, true)]); // older than the spill: void
    let flush = engine.begin_flush().unwrap();
    assert_eq!(said(&flush), (14, 102, None));
    assert_eq!(ledger(&flush.entries), [("new", 14, true)]);
}

#[test]
fn an_entry_that_is_newer_than_its_fact_makes_the_fact_be_read_again() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[acts(10, &["+a"]), acts(11, &["+b"])]).unwrap();
    assert_eq!(engine.take_loads(9), [like()]);
    engine.loaded(&like(), spilled(10, 5, 100)).unwrap();
    load_entries(&mut engine, &[("a", 11, true)]); // another owner's
    assert_eq!(engine.take_loads(9), [like()]);
    engine.loaded(&like(), spilled(12, 5, 102)).unwrap();
    let flush = engine.begin_flush().unwrap();
    assert_eq!(said(&flush), (12, 102, None), "both are in the fact that was taken over");
    assert_eq!(ledger(&flush.entries), [("a", 11, true), ("b", 12, true)]);
}

#[test]
fn a_ledger_that_is_newer_than_every_fact_stops_the_partition() {
    let mut engine = engine(Some(checkpoint(10)));
    engine.fold(&[acts(10, &["+a"])]).unwrap();
    engine.loaded(&like(), spilled(10, 5, 100)).unwrap();
    load_entries(&mut engine, &[("a", 11, true)]);
    engine.take_loads(9);
    let stopped = engine.loaded(&like(), spilled(10, 5, 100));
    assert!(matches!(stopped, Err(Stop::LedgerAhead { .. })));
}

#[test]
fn a_misrouted_act_is_set_aside_with_the_key_that_is_right() {
    let kinds = Arc::new(Kinds::built_in());
    let mut engine = Engine::resume((Partition(0), 64), Epoch::FIRST, kinds, LIMITS, None);
    assert_ne!(route("default", "p", 0, 64), Partition(0));
    engine.fold(&[acts(0, &["+a"])]).unwrap();
    let flush = engine.begin_flush().unwrap();
    assert!(flush.rows.is_empty());
    let [letter] = &flush.dead_letters[..] else { panic!("one letter") };
    assert_eq!(&*letter.code, "misrouted");
    assert!(letter.reason.contains("key the record with 'p"), "{}", letter.reason);
}
