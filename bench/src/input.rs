//! The input: views, Zipf over subjects, always the same.

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Zipf};
use tally_log::Record;
use tally_proto::{Action, BatchBuilder, ContentType, Event, Kinds, Offset};

/// `count` subjects of `different` ones, as popular as Zipf with exponent 1 makes them.
pub(crate) fn subjects(count: usize, different: u64) -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(1);
    let zipf = Zipf::new(different as f64, 1.0).unwrap();
    (0..count).map(|_| format!("video:{}", zipf.sample(&mut rng) as u64)).collect()
}

/// One event as JSON.
pub(crate) fn json(subject: &str) -> String {
    format!(r#"{{"kind":"view","subject":"{subject}"}}"#)
}

/// One event with an id as JSON.
pub(crate) fn json_once(subject: &str, id: usize) -> String {
    format!(r#"{{"kind":"view","subject":"{subject}","id":"{id:024x}"}}"#)
}

fn record(offset: usize, value: Bytes, content_type: ContentType) -> Record {
    let offset = Offset(offset as u64);
    Record { offset, append_time_ms: 1, key: Bytes::new(), value, content_type }
}

/// A record of JSON for each subject.
pub(crate) fn json_records(subjects: &[String]) -> Vec<Record> {
    let value = |subject: &String| Bytes::from(json(subject));
    let records = subjects.iter().enumerate();
    records.map(|(at, subject)| record(at, value(subject), ContentType::Json)).collect()
}

/// Packed records of `batch` events each, as ingest makes them.
pub(crate) fn packed_records(subjects: &[String], batch: usize) -> Vec<Record> {
    pack(subjects, batch, |_| None)
}

/// The same of events with ids, each its own.
pub(crate) fn packed_records_once(subjects: &[String], batch: usize) -> Vec<Record> {
    pack(subjects, batch, |at| Some(format!("{at:024x}")))
}

fn pack(subjects: &[String], batch: usize, id: impl Fn(usize) -> Option<String>) -> Vec<Record> {
    let kinds = Kinds::built_in();
    let kind = kinds.get("view").unwrap();
    let pack = |(number, subjects): (usize, &[String])| {
        let mut builder = BatchBuilder::default();
        for (at, subject) in subjects.iter().enumerate() {
            let id = id(number * batch + at);
            let (namespace, action, actor) = ("default", Action::Add(1), None);
            let event = Event { namespace, kind, subject, action, actor, id: id.as_deref() };
            builder.try_push(&event).unwrap();
        }
        record(number, builder.finish(), ContentType::Batch)
    };
    subjects.chunks(batch).enumerate().map(pack).collect()
}
