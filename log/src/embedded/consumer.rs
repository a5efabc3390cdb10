//! Reading the embedded log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_proto::{Offset, Partition};

use super::Shared;
use super::segments::Segments;
use crate::port::{LogConsumer, Polled, RecordBatch};

/// Most records that one poll hands out of one partition.
const POLL_RECORDS: usize = 512;

pub(super) struct EmbeddedConsumer {
    shared: Arc<Shared>,
    announce: Option<Vec<Partition>>,
    open: BTreeMap<Partition, Cursor>,
}

struct Cursor {
    next: Offset,
    paused: bool,
    /// The trouble was told already.
    told: bool,
}

impl EmbeddedConsumer {
    pub(super) fn new(shared: Arc<Shared>, assigned: Vec<Partition>) -> Self {
        EmbeddedConsumer { shared, announce: Some(assigned), open: BTreeMap::new() }
    }
}

/// What the open partitions hold for their cursors.
fn ready(open: &mut BTreeMap<Partition, Cursor>, segments: &Segments) -> Vec<Polled> {
    let mut polled = Vec::new();
    for (partition, cursor) in open.iter_mut().filter(|(_, cursor)| !cursor.paused) {
        let Some(bounds) = segments.bounds(*partition) else { continue };
        if cursor.next < bounds.start || cursor.next > bounds.end {
            if !std::mem::replace(&mut cursor.told, true) {
                polled.push(Polled::OutOfRange(*partition));
            }
            continue;
        }
        match segments.read(*partition, cursor.next, POLL_RECORDS) {
            Ok(records) if records.is_empty() => {}
            Ok(records) => {
                cursor.told = false;
                cursor.next = records.last().map_or(cursor.next, |r| r.offset.as_of().next());
                polled.push(Polled::Records(RecordBatch { partition: *partition, records }));
            }
            Err(error) if !std::mem::replace(&mut cursor.told, true) => {
                let message = error.to_string();
                polled.push(Polled::Trouble { partition: Some(*partition), message });
            }
            Err(_) => {}
        }
    }
    polled
}

impl LogConsumer for EmbeddedConsumer {
    fn poll(&mut self, max_wait: Duration) -> Vec<Polled> {
        if let Some(partitions) = self.announce.take() {
            return vec![Polled::Assigned(partitions)];
        }
        let mut segments = self.shared.segments.lock();
        let polled = ready(&mut self.open, &segments);
        if !polled.is_empty() {
            return polled;
        }
        self.shared.appended.wait_for(&mut segments, max_wait);
        ready(&mut self.open, &segments)
    }

    fn open(&mut self, partition: Partition, from: Offset) {
        self.open.insert(partition, Cursor { next: from, paused: false, told: false });
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

    fn report(&mut self, partition: Partition, _next: Offset, needed: Offset) {
        self.shared.segments.lock().release(partition, needed);
    }
}
