//! The log in memory: for tests and trials; gone with the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Condvar, Mutex};
use tally_proto::{Offset, Partition};
use tally_service::clock::SharedClock;

use crate::port::{
    AppendError, Bounds, Consume, EventLog, Found, LogConsumer, LogError, NewRecord, Polled,
    Record, RecordBatch,
};

/// Most records that one poll hands out of one partition.
const POLL_RECORDS: usize = 1_000;

/// A log in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryLog {
    shared: Arc<Shared>,
    clock: SharedClock,
}

struct Shared {
    partitions: Mutex<Vec<Vec<Record>>>,
    appended: Condvar,
}

impl MemoryLog {
    /// An empty log.
    pub fn new(partitions: u32, clock: SharedClock) -> Self {
        let partitions = Mutex::new(vec![Vec::new(); partitions as usize]);
        MemoryLog { shared: Arc::new(Shared { partitions, appended: Condvar::new() }), clock }
    }
}

fn offset_of(length: usize) -> Offset {
    Offset(length as u64)
}

fn no_such(partition: Partition) -> LogError {
    LogError::Unsuitable(format!("the log has no partition {partition}"))
}

#[async_trait]
impl EventLog for MemoryLog {
    fn cluster(&self) -> &str {
        "memory"
    }

    fn topic(&self) -> &str {
        "memory"
    }

    fn partitions(&self) -> u32 {
        u32::try_from(self.shared.partitions.lock().len()).unwrap_or(u32::MAX)
    }

    async fn append(&self, partition: Partition, record: NewRecord) -> Result<Offset, AppendError> {
        let mut partitions = self.shared.partitions.lock();
        let records = partitions
            .get_mut(partition.0 as usize)
            .ok_or_else(|| AppendError::Refused(no_such(partition).to_string()))?;
        let offset = offset_of(records.len());
        let before = records.last().map_or(0, |record| record.append_time_ms);
        records.push(Record {
            offset,
            append_time_ms: self.clock.unix_ms().max(before),
            key: record.key,
            value: record.value,
            content_type: record.content_type,
        });
        self.shared.appended.notify_all();
        Ok(offset)
    }

    async fn read_at(&self, partition: Partition, offset: Offset) -> Result<Found, LogError> {
        let partitions = self.shared.partitions.lock();
        let records = partitions.get(partition.0 as usize).ok_or_else(|| no_such(partition))?;
        let record = usize::try_from(offset.0).ok().and_then(|at| records.get(at));
        Ok(record.map_or(
            Found::Nothing(Bounds { start: Offset(0), end: offset_of(records.len()) }),
            |record| Found::Record(record.fingerprint()),
        ))
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, LogError> {
        let partitions = self.shared.partitions.lock();
        let records = partitions.get(partition.0 as usize).ok_or_else(|| no_such(partition))?;
        Ok(Bounds { start: Offset(0), end: offset_of(records.len()) })
    }

    fn consumer(&self, consume: Consume) -> Result<Box<dyn LogConsumer>, LogError> {
        let assigned = match consume {
            Consume::Assign(partitions) => partitions,
            Consume::Group(_) => (0..self.partitions()).map(Partition).collect(),
        };
        let shared = self.shared.clone();
        Ok(Box::new(MemoryConsumer { shared, assigned, open: BTreeMap::new(), announced: false }))
    }
}

struct MemoryConsumer {
    shared: Arc<Shared>,
    assigned: Vec<Partition>,
    open: BTreeMap<Partition, Cursor>,
    announced: bool,
}

struct Cursor {
    next: usize,
    paused: bool,
}

impl MemoryConsumer {
    fn ready(open: &mut BTreeMap<Partition, Cursor>, partitions: &[Vec<Record>]) -> Vec<Polled> {
        let mut polled = Vec::new();
        for (partition, cursor) in open.iter_mut().filter(|(_, cursor)| !cursor.paused) {
            let all = partitions.get(partition.0 as usize).map_or(&[][..], Vec::as_slice);
            let records: Vec<Record> =
                all.iter().skip(cursor.next).take(POLL_RECORDS).cloned().collect();
            if !records.is_empty() {
                cursor.next += records.len();
                polled.push(Polled::Records(RecordBatch { partition: *partition, records }));
            }
        }
        polled
    }
}

impl LogConsumer for MemoryConsumer {
    fn poll(&mut self, max_wait: Duration) -> Vec<Polled> {
        if !std::mem::replace(&mut self.announced, true) {
            return vec![Polled::Assigned(self.assigned.clone())];
        }
        let mut partitions = self.shared.partitions.lock();
        let polled = Self::ready(&mut self.open, &partitions);
        if !polled.is_empty() {
            return polled;
        }
        self.shared.appended.wait_for(&mut partitions, max_wait);
        Self::ready(&mut self.open, &partitions)
    }

    fn open(&mut self, partition: Partition, from: Offset) {
        let next = usize::try_from(from.0).unwrap_or(usize::MAX);
        self.open.insert(partition, Cursor { next, paused: false });
    }

    fn pause(&mut self, partition: Partition) {
        if let Some(cursor) = self.open.get_mut(&partition) {
            cursor.paused = true;
        }
    }

    fn resume(&mut self, partition: Partition) {
        if let Some(cursor) = self.open.get_mut(&partition) {
            cursor.paused = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_log_in_memory_keeps_the_contract() {
        let clock = tally_service::clock::SystemClock::shared();
        crate::contract::run(Arc::new(MemoryLog::new(4, clock))).await;
    }
}
