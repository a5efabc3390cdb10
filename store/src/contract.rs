//! The contract suite: what every adapter must do, run by each of them.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use bytes::Bytes;
use tally_proto::{
    AsOf, Checkpoint, CounterId, Epoch, Fact, Fingerprint, Lane, Layout, LedgerEntry, Members,
    Offset, Partition, Stamp, SubjectId,
};

use crate::port::FactStore;
use crate::rows::{Created, DeadLetter, FactRow, LedgerRow, Progress};

/// Runs the suite on an empty store.
pub async fn run(store: Arc<dyn FactStore>) {
    the_layout_is_written_once(&*store).await;
    the_newest_fact_stays_whatever_the_order(&*store).await;
    a_later_epoch_outranks_every_offset(&*store).await;
    facts_are_loaded_in_the_order_asked(&*store).await;
    a_fact_keeps_its_members(&*store).await;
    a_bucket_is_listed_page_by_page(&*store).await;
    the_newest_entry_of_an_actor_stays(&*store).await;
    entries_are_loaded_in_the_order_asked(&*store).await;
    the_layout_is_replaced_by_who_knows_it(&*store).await;
    every_subject_is_listed_once(&*store).await;
    a_subject_has_all_its_kinds_and_partitions(&*store).await;
    the_highest_lane_is_the_one_in_use(&*store).await;
    what_was_said_last_of_a_counter_stays(&*store).await;
    the_newest_checkpoint_stays(&*store).await;
    progress_is_overwritten(&*store).await;
    a_dead_letter_is_kept_once(&*store).await;
    many_facts_are_written_at_once(&*store).await;
}

fn counter(kind: &str, subject: &str) -> CounterId {
    CounterId::new("default", kind, subject).unwrap()
}

fn row(subject: &str, partition: u32, as_of: u64, total: i64) -> FactRow {
    let members = Members::None;
    let fact = Fact { epoch: Epoch::FIRST, as_of: AsOf(as_of), generation: 0, total, members };
    let counter = counter("view", subject);
    FactRow { counter, lane: Lane(0), partition: Partition(partition), fact }
}

async fn load(store: &dyn FactStore, subject: &str, partition: u32) -> Option<Fact> {
    let asked = [counter("view", subject)];
    let loaded = store.load_facts(Partition(partition), &asked).await.unwrap();
    loaded[0].clone().map(|(_, fact)| fact)
}

async fn a_fact_keeps_its_members(store: &dyn FactStore) {
    let listed = Members::Inline(["user:1".into(), "user:2".into()].into());
    let spilled = Members::Spilled(Stamp::new(Epoch::FIRST, AsOf(8)).unwrap());
    for (as_of, members) in [(5, listed), (9, spilled)] {
        let mut row = row("members", 2, as_of, 2);
        row.fact.members = members;
        store.write_facts(&[row.clone()]).await.unwrap();
        assert_eq!(load(store, "members", 2).await, Some(row.fact));
    }
}

fn entry(subject: &str, actor: &str, as_of: u64, is_in: bool) -> LedgerRow {
    let entry = LedgerEntry { epoch: Epoch::FIRST, as_of: AsOf(as_of), is_in };
    LedgerRow { counter: counter("like", subject), actor: actor.into(), entry }
}

async fn the_newest_entry_of_an_actor_stays(store: &dyn FactStore) {
    for (as_of, is_in) in [(5, true), (9, false), (7, true), (9, false), (1, true)] {
        store.write_entries(&[entry("newest", "user:1", as_of, is_in)]).await.unwrap();
    }
    let kept = |as_of, is_in| vec![Some(entry("newest", "user:1", as_of, is_in).entry)];
    let load =
        async || store.load_entries(&counter("like", "newest"), &["user:1".into()]).await.unwrap();
    assert_eq!(load().await, kept(9, false));
    let mut later = entry("newest", "user:1", 0, true);
    later.entry.epoch = Epoch::new(2).unwrap();
    store.write_entries(std::slice::from_ref(&later)).await.unwrap();
    store.write_entries(&[entry("newest", "user:1", 99, false)]).await.unwrap();
    assert_eq!(load().await, [Some(later.entry)], "a later epoch outranks every offset");
}

async fn a_bucket_is_listed_page_by_page(store: &dyn FactStore) {
    let bucket = LedgerEntry::bucket;
    let rows: Vec<_> =
        (0..900).map(|n| entry("pages", &format!("user:{n}"), n + 1, true)).collect();
    store.write_entries(&rows).await.unwrap();
    store.write_entries(&[entry("pages2", "user:0", 1, true)]).await.unwrap();
    let mut expected: Vec<_> = rows.iter().filter(|r| bucket(&r.actor) == 5).collect();
    expected.sort_by(|a, b| a.actor.cmp(&b.actor));
    let (mut listed, mut after) = (Vec::new(), None::<Box<str>>);
    loop {
        let of = counter("like", "pages");
        let page = store.list_entries(&of, 5, after.as_deref(), 4).await.unwrap();
        assert!(page.len() <= 4);
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        listed.extend(page);
    }
    assert!(expected.len() > 8, "more than one page");
    let expected: Vec<_> = expected.iter().map(|r| (r.actor.clone(), r.entry)).collect();
    assert_eq!(listed, expected);
}

async fn entries_are_loaded_in_the_order_asked(store: &dyn FactStore) {
    store.write_entries(&[]).await.unwrap();
    let rows: Vec<_> =
        (0..500).map(|n| entry("many", &format!("user:{n}"), n + 1, n % 2 == 0)).collect();
    store.write_entries(&rows).await.unwrap();
    let asked = [7, 9_999, 0, 499].map(|n| format!("user:{n}").into());
    let found = store.load_entries(&counter("like", "many"), &asked).await.unwrap();
    let known = |n: usize| Some(rows[n].entry);
    assert_eq!(found, [known(7), None, known(0), known(499)]);
    let other = store.load_entries(&counter("like", "other"), &asked).await.unwrap();
    assert_eq!(other, [None; 4], "each counter has its own");
}

async fn the_layout_is_written_once(store: &dyn FactStore) {
    assert_eq!(store.layout().await, Ok(None));
    let layout =
        Layout { cluster: "c".into(), topic: "t".into(), partitions: 8, epoch: 1, fold_version: 1 };
    assert_eq!(store.create_layout(&layout).await, Ok(layout.clone()));
    let other = Layout { partitions: 16, ..layout.clone() };
    assert_eq!(store.create_layout(&other).await, Ok(layout.clone()));
    assert_eq!(store.layout().await, Ok(Some(layout)));
}

async fn the_layout_is_replaced_by_who_knows_it(store: &dyn FactStore) {
    let old = store.layout().await.unwrap().unwrap();
    let new = Layout { epoch: 2, ..old.clone() };
    let wrong = Layout { epoch: 9, ..old.clone() };
    assert_eq!(store.replace_layout(&wrong, &new).await, Ok(old.clone()));
    assert_eq!(store.replace_layout(&old, &new).await, Ok(new.clone()));
    assert_eq!(store.layout().await, Ok(Some(new)));
}

async fn every_subject_is_listed_once(store: &dyn FactStore) {
    for n in 0..25 {
        store.write_facts(&[row(&format!("listed{n}"), n % 3, 1, 1)]).await.unwrap();
        store.write_facts(&[row(&format!("listed{n}"), 7, 1, 1)]).await.unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_subjects(after.as_ref(), 10).await.unwrap();
        assert!(page.len() <= 10);
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        listed.extend(page.into_iter().map(|s| s.subject).filter(|s| s.starts_with("listed")));
    }
    let all = listed.len();
    listed.sort();
    listed.dedup();
    assert_eq!((all, listed.len()), (25, 25));
}

async fn the_newest_fact_stays_whatever_the_order(store: &dyn FactStore) {
    assert_eq!(load(store, "order", 0).await, None);
    for as_of in [5, 9, 7, 9, 1] {
        let total = i64::try_from(as_of).unwrap() * 10;
        store.write_facts(&[row("order", 0, as_of, total)]).await.unwrap();
    }
    let kept = load(store, "order", 0).await.unwrap();
    assert_eq!((kept.as_of, kept.total), (AsOf(9), 90));
    store.write_facts(&[row("order", 0, 10, -3)]).await.unwrap();
    assert_eq!(load(store, "order", 0).await.unwrap().total, -3);
}

async fn a_later_epoch_outranks_every_offset(store: &dyn FactStore) {
    let mut later = row("epochs", 0, 3, 30);
    later.fact.epoch = Epoch::new(2).unwrap();
    store.write_facts(&[later.clone()]).await.unwrap();
    store.write_facts(&[row("epochs", 0, 1_000_000, 1)]).await.unwrap();
    assert_eq!(load(store, "epochs", 0).await, Some(later.fact));
}

async fn facts_are_loaded_in_the_order_asked(store: &dyn FactStore) {
    store.write_facts(&[row("l1", 3, 4, 1), row("l2", 3, 4, 2), row("l2", 4, 4, 7)]).await.unwrap();
    let asked = [counter("view", "l2"), counter("view", "absent"), counter("view", "l1")];
    let loaded = store.load_facts(Partition(3), &asked).await.unwrap();
    let totals: Vec<_> = loaded.iter().map(|l| l.as_ref().map(|(_, fact)| fact.total)).collect();
    assert_eq!(totals, [Some(2), None, Some(1)]);
    assert_eq!(store.load_facts(Partition(3), &[]).await, Ok(vec![]));
}

async fn a_subject_has_all_its_kinds_and_partitions(store: &dyn FactStore) {
    let mut reply = row("subject", 2, 4, 7);
    reply.counter = counter("reply", "subject");
    let rows = [row("subject", 0, 4, 1), row("subject", 5, 4, 2), reply, row("subject2", 0, 4, 9)];
    store.write_facts(&rows).await.unwrap();
    let subject = SubjectId::new("default", "subject").unwrap();
    let mut read = store.read_subject(&subject).await.unwrap();
    read.sort_by_key(|row| row.partition);
    assert_eq!(read, [rows[0].clone(), rows[2].clone(), rows[1].clone()]);
    let absent = SubjectId::new("other", "subject").unwrap();
    assert_eq!(store.read_subject(&absent).await, Ok(vec![]));
}

async fn the_highest_lane_is_the_one_in_use(store: &dyn FactStore) {
    let abandoned = row("lanes", 0, 1_000, 1);
    let mut used = row("lanes", 0, 5, 2);
    used.lane = Lane(1);
    let other = row("lanes", 1, 5, 4);
    store.write_facts(&[used.clone(), abandoned, other.clone()]).await.unwrap();
    let asked = [counter("view", "lanes")];
    let loaded = store.load_facts(Partition(0), &asked).await.unwrap();
    assert_eq!(loaded, [Some((Lane(1), used.fact.clone()))]);
    let mut read = store.read_subject(&asked[0].subject).await.unwrap();
    read.sort_by_key(|row| row.partition);
    assert_eq!(read, [used, other]);
}

async fn what_was_said_last_of_a_counter_stays(store: &dyn FactStore) {
    let counter = CounterId::new("default", "view", "created").unwrap();
    let other = CounterId::new("eu", "view", "created").unwrap();
    assert_eq!(store.load_created(&counter).await, Ok(None));
    for shards in [8, 4] {
        store.write_created(&counter, Some(Created { shards })).await.unwrap();
        assert_eq!(store.load_created(&counter).await, Ok(Some(Created { shards })));
    }
    assert_eq!(store.load_created(&other).await, Ok(None));
    store.write_created(&counter, None).await.unwrap();
    assert_eq!(store.load_created(&counter).await, Ok(None));
}

async fn the_newest_checkpoint_stays(store: &dyn FactStore) {
    let at = |as_of: u64| Checkpoint {
        epoch: Epoch::FIRST,
        as_of: AsOf(as_of),
        last: Some(Fingerprint { offset: Offset(as_of - 1), crc32c: 7, append_time_ms: 8 }),
        window_from: AsOf(as_of - 3),
    };
    assert_eq!(store.load_checkpoint(Partition(7)).await, Ok(None));
    for as_of in [5, 9, 7] {
        store.write_checkpoint(Partition(7), &at(as_of)).await.unwrap();
    }
    assert_eq!(store.load_checkpoint(Partition(7)).await, Ok(Some(at(9))));
    assert_eq!(store.load_checkpoint(Partition(6)).await, Ok(None));
}

async fn progress_is_overwritten(store: &dyn FactStore) {
    let progress = |aggregator: &str, as_of, caught_up_at_ms| Progress {
        partition: Partition(1),
        aggregator: aggregator.into(),
        as_of: AsOf(as_of),
        caught_up_at_ms,
    };
    store.write_progress(&[progress("a", 9, 900), progress("b", 3, 300)]).await.unwrap();
    store.write_progress(&[progress("a", 5, 500)]).await.unwrap();
    let mut read = store.read_progress(8).await.unwrap();
    read.sort_by(|a, b| a.aggregator.cmp(&b.aggregator));
    assert_eq!(read, [progress("a", 5, 500), progress("b", 3, 300)]);
}

async fn a_dead_letter_is_kept_once(store: &dyn FactStore) {
    let letter = |offset, index| DeadLetter {
        partition: Partition(1),
        offset: Offset(offset),
        index,
        append_time_ms: 1_795_176_001_250,
        code: "damaged_batch".into(),
        reason: "no batch".into(),
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(&[0xff, 0]),
    };
    let letters = [letter(4, 0), letter(4, 1), letter(9, 0)];
    store.write_dead_letters(&letters).await.unwrap();
    store.write_dead_letters(&letters[1..]).await.unwrap();
    let day = letters[0].day();
    assert_eq!(store.read_dead_letters(Partition(1), day, 10).await.unwrap(), letters);
    assert_eq!(store.read_dead_letters(Partition(1), day, 2).await.unwrap(), letters[..2]);
    assert_eq!(store.read_dead_letters(Partition(1), day + 1, 10).await, Ok(vec![]));
}

async fn many_facts_are_written_at_once(store: &dyn FactStore) {
    let rows: Vec<_> = (0..2_000).map(|n| row(&format!("many:{n}"), 2, 4, n)).collect();
    store.write_facts(&rows).await.unwrap();
    let asked: Vec<_> = rows.iter().map(|row| row.counter.clone()).collect();
    let loaded = store.load_facts(Partition(2), &asked).await.unwrap();
    for (row, loaded) in rows.iter().zip(loaded) {
        assert_eq!(loaded, Some((Lane(0), row.fact.clone())));
    }
}
