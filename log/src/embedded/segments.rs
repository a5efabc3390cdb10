//! Segments: a keyspace each, for a stretch of all partitions, dropped whole.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use serde::{Deserialize, Serialize};
use tally_proto::{Offset, Partition};
use tally_service::clock::Clock;

use super::record;
use super::settings::EmbeddedLogSettings;
use crate::port::{Bounds, LogError, NewRecord, Record};

/// The version of the folder's contents.
const FORMAT: &str = "tally-log 1";

/// The partitions of a log for which nobody named a number.
const DEFAULT_PARTITIONS: u32 = 8;

/// What the folder says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    cluster: String,
    partitions: u32,
}

/// What is written of a segment when it begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Beginning {
    created_ms: i64,
    /// Per partition: its first offset in the segment, or what that would be.
    first_offsets: Vec<u64>,
}

struct Segment {
    number: u64,
    beginning: Beginning,
    records: Keyspace,
    bytes: u64,
}

/// All segments, oldest first, and where each partition stands.
pub(super) struct Segments {
    database: Database,
    meta: Keyspace,
    settings: EmbeddedLogSettings,
    segments: Vec<Segment>,
    ends: Vec<u64>,
    append_times_ms: Vec<i64>,
    /// Per partition: everything below is durable in facts.
    released: Vec<u64>,
}

/// A record that has its place, not yet written.
pub(super) struct Placed {
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    bytes: Vec<u8>,
}

fn key(partition: Partition, offset: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&partition.0.to_be_bytes());
    key[4..].copy_from_slice(&offset.to_be_bytes());
    key
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain numbers and texts become JSON")
}

fn unreadable(what: &str) -> LogError {
    LogError::Damaged(format!("{what} cannot be read"))
}

impl Segments {
    /// The log's id and its segments; makes them in an empty folder.
    pub(super) fn open(
        database: Database,
        partitions: Option<u32>,
        settings: EmbeddedLogSettings,
        clock: &dyn Clock,
    ) -> Result<(String, Self), LogError> {
        let meta = database.keyspace("meta", KeyspaceCreateOptions::default)?;
        let header = header(&database, &meta, partitions)?;
        let partitions = header.partitions;
        let mut segments = Segments {
            database,
            meta,
            settings,
            segments: Vec::new(),
            ends: vec![0; partitions as usize],
            append_times_ms: vec![0; partitions as usize],
            released: vec![0; partitions as usize],
        };
        segments.recover()?;
        if segments.segments.is_empty() {
            segments.begin(0, clock.unix_ms())?;
        }
        Ok((header.cluster, segments))
    }

    fn recover(&mut self) -> Result<(), LogError> {
        for item in self.meta.prefix("segment/") {
            let (name, value) = item.into_inner()?;
            let number = std::str::from_utf8(&name).ok().and_then(|n| n.get(8..)?.parse().ok());
            let number = number.ok_or_else(|| unreadable("a segment's name"))?;
            let beginning: Beginning =
                serde_json::from_slice(&value).map_err(|_| unreadable("a segment's beginning"))?;
            let records = self.keyspace(number)?;
            let bytes = records.disk_space();
            self.segments.push(Segment { number, beginning, records, bytes });
        }
        for partition in 0..self.partitions() {
            self.recover_end(Partition(partition))?;
        }
        Ok(())
    }

    /// The newest record of a partition says where it ends.
    fn recover_end(&mut self, partition: Partition) -> Result<(), LogError> {
        let at = partition.0 as usize;
        for segment in self.segments.iter().rev() {
            self.ends[at] = self.ends[at].max(segment.beginning.first_offsets[at]);
            let last = segment.records.prefix(partition.0.to_be_bytes()).next_back();
            if let Some(item) = last {
                let (key, bytes) = item.into_inner()?;
                let offset = offset_of(&key).ok_or_else(|| unreadable("a record's key"))?;
                self.ends[at] = offset + 1;
                self.append_times_ms[at] = record::decode(Offset(offset), &bytes)?.append_time_ms;
                break;
            }
        }
        Ok(())
    }

    fn keyspace(&self, number: u64) -> Result<Keyspace, LogError> {
        let name = format!("segment-{number:012}");
        Ok(self.database.keyspace(&name, KeyspaceCreateOptions::default)?)
    }

    /// Begins a new segment: from here on records go there.
    fn begin(&mut self, number: u64, now_ms: i64) -> Result<(), LogError> {
        let beginning = Beginning { created_ms: now_ms, first_offsets: self.ends.clone() };
        let records = self.keyspace(number)?;
        self.meta.insert(format!("segment/{number:012}"), json(&beginning))?;
        self.database.persist(PersistMode::SyncAll)?;
        self.segments.push(Segment { number, beginning, records, bytes: 0 });
        Ok(())
    }

    pub(super) fn partitions(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn bounds(&self, partition: Partition) -> Option<Bounds> {
        let at = partition.0 as usize;
        let end = Offset(*self.ends.get(at)?);
        let first = self.segments.first().and_then(|s| s.beginning.first_offsets.get(at));
        Some(Bounds { start: first.map_or(end, |first| Offset(*first)), end })
    }

    pub(super) fn release(&mut self, partition: Partition, offset: Offset) {
        if let Some(released) = self.released.get_mut(partition.0 as usize) {
            *released = offset.0.max(*released);
        }
    }

    /// Gives records their places, in order; nothing is visible before [`Segments::publish`].
    pub(super) fn place<'r>(
        &self,
        records: impl Iterator<Item = (Partition, &'r NewRecord)>,
        now_ms: i64,
    ) -> Vec<Option<Placed>> {
        let mut ends = self.ends.clone();
        let mut place = |(partition, record): (Partition, &NewRecord)| {
            let at = partition.0 as usize;
            let end = ends.get_mut(at)?;
            let offset = Offset(*end);
            *end += 1;
            let bytes = record::encode(record, now_ms.max(self.append_times_ms[at]));
            Some(Placed { partition, offset, bytes })
        };
        records.map(&mut place).collect()
    }

    /// What is written and synced as one batch, without holding the segments' lock.
    pub(super) fn batch<'p>(
        &self,
        placed: impl Iterator<Item = &'p Placed>,
    ) -> Result<fjall::OwnedWriteBatch, LogError> {
        let segment = self.segments.last().ok_or_else(|| unreadable("the newest segment"))?;
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for record in placed {
            let key = key(record.partition, record.offset.0);
            batch.insert(&segment.records, key, record.bytes.as_slice());
        }
        Ok(batch)
    }

    /// The records are on the disk: consumers may see them.
    pub(super) fn publish<'p>(&mut self, placed: impl Iterator<Item = &'p Placed>, now_ms: i64) {
        for record in placed {
            let at = record.partition.0 as usize;
            self.ends[at] = record.offset.0 + 1;
            self.append_times_ms[at] = now_ms.max(self.append_times_ms[at]);
            if let Some(segment) = self.segments.last_mut() {
                segment.bytes += record.bytes.len() as u64;
            }
        }
    }

    /// Closes the newest segment if it is large or old enough, and drops what retention takes.
    pub(super) fn keep_house(&mut self, now_ms: i64) -> Result<(), LogError> {
        let Some(newest) = self.segments.last() else { return Ok(()) };
        let age = now_ms - newest.beginning.created_ms;
        let is_old = newest.bytes > 0 && age > self.settings.retention_ms() / 10;
        if newest.bytes >= self.settings.segment_bytes || is_old {
            self.begin(newest.number + 1, now_ms)?;
        }
        while self.oldest_is_due(now_ms) {
            let oldest = self.segments.remove(0);
            tracing::info!(segment = oldest.number, bytes = oldest.bytes, "segment dropped");
            self.meta.remove(format!("segment/{:012}", oldest.number))?;
            self.database.persist(PersistMode::SyncAll)?;
            self.database.delete_keyspace(oldest.records)?;
        }
        Ok(())
    }

    /// Whether retention takes the oldest segment: it is too old or the log too large, and all of
    /// it is durable in facts.
    fn oldest_is_due(&self, now_ms: i64) -> bool {
        let Some(second) = self.segments.get(1) else { return false };
        let folded = second.beginning.first_offsets.iter().zip(&self.released);
        let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        // All of it was written before the second began.
        let is_old = now_ms - second.beginning.created_ms > self.settings.retention_ms();
        (is_old || bytes > self.settings.retention_bytes)
            && folded.into_iter().all(|(first, released)| first <= released)
    }

    /// At most `most` records of a partition from `from` on, out of one segment.
    pub(super) fn read(
        &self,
        partition: Partition,
        from: Offset,
        most: usize,
    ) -> Result<Vec<Record>, LogError> {
        let at = partition.0 as usize;
        let end = self.ends.get(at).copied().unwrap_or(0);
        let holds = |segment: &&Segment| segment.beginning.first_offsets[at] <= from.0;
        let Some(segment) = self.segments.iter().rev().find(holds) else { return Ok(Vec::new()) };
        let range = key(partition, from.0)..key(partition, end.max(from.0));
        let mut records = Vec::new();
        for item in segment.records.range(range).take(most) {
            let (key, bytes) = item.into_inner()?;
            let offset = offset_of(&key).ok_or_else(|| unreadable("a record's key"))?;
            records.push(record::decode(Offset(offset), &bytes)?);
        }
        Ok(records)
    }
}

fn offset_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(4..)?.try_into().ok()?))
}

/// The folder's header; written into an empty folder.
fn header(
    database: &Database,
    meta: &Keyspace,
    partitions: Option<u32>,
) -> Result<Header, LogError> {
    let Some(found) = meta.get("header")? else {
        let cluster = uuid::Uuid::new_v4().to_string();
        let partitions = partitions.unwrap_or(DEFAULT_PARTITIONS);
        let header = Header { format: FORMAT.into(), cluster, partitions };
        meta.insert("header", json(&header))?;
        database.persist(PersistMode::SyncAll)?;
        return Ok(header);
    };
    let header: Header =
        serde_json::from_slice(&found).map_err(|_| unreadable("the log's header"))?;
    if header.format != FORMAT {
        return Err(LogError::Unsuitable(format!(
            "the folder holds '{}', this build reads '{FORMAT}'",
            header.format
        )));
    }
    if let Some(partitions) = partitions.filter(|partitions| *partitions != header.partitions) {
        return Err(LogError::Unsuitable(format!(
            "the embedded log has {} partitions for life, but the settings ask for {partitions}: \
             set partitions = {}, or begin with an empty data folder",
            header.partitions, header.partitions
        )));
    }
    Ok(header)
}
