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
    let kinds = Kinds::built_in();
    let kind = kinds.get("view").unwrap();
    let pack = |subjects: &[String]| {
        let mut builder = BatchBuilder::default();
        for subject in subjects {
            let action = Action::Add(1);
            builder.try_push(&Event { namespace: "default", kind, subject, action }).unwrap();
        }
        builder.finish()
    };
    let batches = subjects.chunks(batch).enumerate();
    batches.map(|(at, subjects)| record(at, pack(subjects), ContentType::Batch)).collect()
}
