//! The keys of the embedded store, in the order that reads want. Names hold no zero byte.

use tally_proto::{CounterId, Lane, LedgerEntry, Partition, SubjectId};

use super::as_of;
use crate::rows::{DeadLetter, FactRow, Progress};

/// Namespace 0 subject 0: what all facts of a subject begin with.
pub(super) fn subject(subject: &SubjectId) -> Vec<u8> {
    let mut key = Vec::with_capacity(subject.namespace.len() + subject.subject.len() + 40);
    key.extend(subject.namespace.as_bytes());
    key.push(0);
    key.extend(subject.subject.as_bytes());
    key.push(0);
    key
}

/// What is above all keys of a subject, and below those of the next.
pub(super) fn after_subject(id: &SubjectId) -> Vec<u8> {
    let mut key = subject(id);
    key.pop();
    key.push(1); // names hold no byte below it
    key
}

/// The subject of a fact's key.
pub(super) fn read_subject(key: &[u8]) -> Option<SubjectId> {
    let mut names = key.split(|byte| *byte == 0).map(std::str::from_utf8);
    let (namespace, subject) = (names.next()?.ok()?, names.next()?.ok()?);
    Some(SubjectId { namespace: namespace.into(), subject: subject.into() })
}

/// Subject, kind 0 partition: what all lanes of a fact begin with.
pub(super) fn lanes(counter: &CounterId, partition: Partition) -> Vec<u8> {
    let mut key = subject(&counter.subject);
    key.extend(counter.kind.as_bytes());
    key.push(0);
    key.extend(partition.0.to_be_bytes());
    key
}

/// Subject, kind.
pub(super) fn created(counter: &CounterId) -> Vec<u8> {
    let mut key = subject(&counter.subject);
    key.extend(counter.kind.as_bytes());
    key
}

/// Lanes, lane.
pub(super) fn fact(row: &FactRow) -> Vec<u8> {
    let mut key = lanes(&row.counter, row.partition);
    key.push(row.lane.0);
    key
}

/// Kind, partition and lane of a fact's key.
pub(super) fn read_fact<'k>(key: &'k [u8], of: &SubjectId) -> Option<(&'k str, Partition, Lane)> {
    let rest = key.get(subject(of).len()..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (kind, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
    let (lane, partition) = rest.split_last()?;
    let partition = u32::from_be_bytes(partition.try_into().ok()?);
    Some((std::str::from_utf8(kind).ok()?, Partition(partition), Lane(*lane)))
}

/// Subject, kind 0 bucket: what all entries of a bucket begin with.
pub(super) fn bucket(counter: &CounterId, bucket: u32) -> Vec<u8> {
    let mut key = subject(&counter.subject);
    key.extend(counter.kind.as_bytes());
    key.push(0);
    key.extend(bucket.to_be_bytes());
    key
}

/// Bucket, actor.
pub(super) fn entry(counter: &CounterId, actor: &str) -> Vec<u8> {
    let mut key = bucket(counter, LedgerEntry::bucket(actor));
    key.extend(actor.as_bytes());
    key
}

/// The actor of an entry's key.
pub(super) fn read_actor<'k>(key: &'k [u8], bucket: &[u8]) -> Option<&'k str> {
    std::str::from_utf8(key.strip_prefix(bucket)?).ok()
}

/// Partition, aggregator.
pub(super) fn progress(row: &Progress) -> Vec<u8> {
    let mut key = row.partition.0.to_be_bytes().to_vec();
    key.extend(row.aggregator.as_bytes());
    key
}

/// A progress row.
pub(super) fn read_progress(key: &[u8], value: &[u8]) -> Option<Progress> {
    let (partition, aggregator) = key.split_first_chunk::<4>()?;
    let (next, caught_up) = value.split_first_chunk::<8>()?;
    Some(Progress {
        partition: Partition(u32::from_be_bytes(*partition)),
        aggregator: std::str::from_utf8(aggregator).ok()?.into(),
        as_of: as_of(next)?,
        caught_up_at_ms: i64::from_be_bytes(caught_up.try_into().ok()?),
    })
}

/// Partition, day: what all dead letters of a day begin with.
pub(super) fn day(partition: Partition, day: i32) -> Vec<u8> {
    let mut key = partition.0.to_be_bytes().to_vec();
    key.extend(day.to_be_bytes());
    key
}

/// Day, offset, index.
pub(super) fn dead_letter(letter: &DeadLetter) -> Vec<u8> {
    let mut key = day(letter.partition, letter.day());
    key.extend(letter.offset.0.to_be_bytes());
    key.extend(letter.index.to_be_bytes());
    key
}

/// Offset and index of a dead letter's key.
pub(super) fn read_dead_letter(key: &[u8]) -> Option<(u64, u32)> {
    let (offset, index) = key.get(8..)?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*offset), u32::from_be_bytes(index.try_into().ok()?)))
}
