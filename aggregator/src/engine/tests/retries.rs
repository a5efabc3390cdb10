//! Repeats are left out, by whoever folds.

use tally_proto::RetryWindow;

use super::*;

fn view_once(offset: u64, id: &str) -> Record {
    record(offset, &format!(r#"{{"kind":"view","subject":"a","id":"{id}"}}"#))
}

fn remembers(ids: usize, checkpoint: Option<Checkpoint>) -> Engine {
    let view = Kinds::built_in().get("view").unwrap().clone();
    let window = RetryWindow { ids, span_ms: 1_000 };
    let kinds = Arc::new(Kinds::new(vec![view], window));
    Engine::resume((Partition(0), 1), Epoch::FIRST, kinds, LIMITS, checkpoint)
}

#[test]
fn an_event_with_an_id_is_counted_once() {
    let mut engine = remembers(10, None);
    let records = [view_once(0, "1"), view_once(1, "2"), view_once(2, "1"), view(3, "a", 5)];
    engine.fold(&records).unwrap();
    load_all_absent(&mut engine);
    let flush = engine.begin_flush().unwrap();
    assert_eq!(written(&flush), [("a", 4, 7)]);
    assert_eq!(flush.checkpoint.unwrap().window_from, AsOf(0));
    assert_eq!(engine.take_repeats(), 1);
}

#[test]
fn a_fold_that_resumes_knows_the_ids_of_the_window() {
    let mut before = remembers(2, None);
    before.fold(&[view_once(0, "1"), view_once(1, "2"), view_once(2, "3")]).unwrap();
    load_all_absent(&mut before);
    let checkpoint = before.begin_flush().unwrap().checkpoint.unwrap();
    assert_eq!((checkpoint.as_of, checkpoint.window_from), (AsOf(3), AsOf(1)));

    let mut engine = remembers(2, Some(checkpoint));
    assert_eq!((engine.next(), engine.durable()), (AsOf(1), AsOf(3)));
    engine.fold(&[view_once(1, "2")]).unwrap();
    assert!(engine.is_refilling() && engine.begin_flush().is_none());
    assert_eq!(engine.last(), checkpoint.last, "by it the log is recognised");
    engine.fold(&[view_once(2, "3"), view_once(3, "2"), view_once(4, "1")]).unwrap();
    assert!(!engine.is_refilling());
    assert_eq!(engine.take_loads(9), [counter("a")]);
    engine.loaded(&counter("a"), fact(3, 3)).unwrap();
    assert_eq!(written(&engine.begin_flush().unwrap()), [("a", 5, 4)], "only 1 is forgotten");
}

#[test]
fn an_id_far_from_its_partition_is_set_aside_with_the_right_key() {
    let kinds = Arc::new(Kinds::built_in());
    let event = |id: u64| format!(r#"{{"kind":"view","subject":"a","id":"{id}"}}"#);
    let away = |id: &u64| {
        let json = event(*id);
        let raw = tally_proto::RawEvent::parse(&json).unwrap();
        tally_proto::route("default", "a", raw.check(&kinds).unwrap().slot(), 16) != Partition(3)
    };
    let id = (0..).find(away).unwrap();
    let place = (Partition(3), 16);
    let mut engine = Engine::resume(place, Epoch::FIRST, kinds.clone(), LIMITS, None);
    engine.fold(&[record(0, &event(id))]).unwrap();
    let letters = engine.begin_flush().unwrap().dead_letters;
    assert_eq!(&*letters[0].code, "misrouted");
    assert!(letters[0].reason.contains("key the record with 'a/"), "{}", letters[0].reason);
    assert_eq!(letters[0].value, event(id), "as it came");
}
