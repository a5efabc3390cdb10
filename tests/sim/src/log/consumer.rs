//! The consumers of the simulated log: they redeliver, skip, and deliver what was there before.

use std::collections::BTreeMap;
use std::time::Duration;

use tally_log::{LogConsumer, Polled, Record, RecordBatch};
use tally_proto::{Offset, Partition};

use super::{Inbox, Shard, SimLog};
use crate::process::Process;

pub(super) struct Consumer {
    log: SimLog,
    process: Process,
    /// In the group, if it is in it.
    member: Option<u64>,
    inbox: Inbox,
    cursors: BTreeMap<Partition, Cursor>,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    next: u64,
    paused: bool,
    /// Nothing was delivered since it was opened here: the first answer is an honest one.
    fresh: bool,
    /// Where it stood before: from there records still come once.
    stale: Option<u64>,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(member) = self.member {
            self.log.leave(member);
        }
    }
}

impl Consumer {
    pub(super) fn new(log: SimLog, process: Process, member: Option<u64>, inbox: Inbox) -> Self {
        Consumer { log, process, member, inbox, cursors: BTreeMap::new() }
    }

    /// Some records from an offset on, and where they end.
    fn fetch(shard: &Shard, from: u64, most: u64) -> (Vec<Record>, u64) {
        let end = from.saturating_add(most).min(shard.slots.len() as u64);
        let records = (from..end).filter_map(|offset| shard.at(Offset(offset)).cloned());
        (records.collect(), end)
    }

    fn deliver(&mut self) -> Vec<Polled> {
        let (dice, mut polled) = (&self.log.dice, Vec::new());
        let state = self.log.state.lock();
        let glitches = state.glitches;
        for (partition, cursor) in self.cursors.iter_mut().filter(|(_, c)| !c.paused) {
            let shard = &state.partitions[partition.0 as usize];
            let bounds = shard.bounds();
            if let Some(stale) = cursor.stale.take().filter(|stale| *stale >= bounds.start.0) {
                let (records, _) = Self::fetch(shard, stale, dice.between(1, 4));
                if !records.is_empty() {
                    polled.push(Polled::Records(RecordBatch { partition: *partition, records }));
                }
            }
            if cursor.next < bounds.start.0 || cursor.next > bounds.end.0 {
                polled.push(Polled::OutOfRange(*partition));
                cursor.paused = true;
                continue;
            }
            let (records, end) = Self::fetch(shard, cursor.next, dice.between(1, 8));
            let is_skipped = !cursor.fresh && dice.chance(glitches.skipped);
            cursor.fresh &= records.is_empty();
            cursor.next = end;
            if dice.chance(glitches.again) {
                cursor.next = end.saturating_sub(dice.between(1, 6)).max(bounds.start.0);
            }
            if !records.is_empty() && !is_skipped {
                let (from, to) = (records[0].offset, records[records.len() - 1].offset);
                tracing::debug!(who = self.process.name(), %partition, %from, %to, "delivered");
                polled.push(Polled::Records(RecordBatch { partition: *partition, records }));
            }
        }
        polled
    }
}

impl LogConsumer for Consumer {
    fn poll(&mut self, _max_wait: Duration) -> Vec<Polled> {
        if self.process.is_frozen() {
            return Vec::new();
        }
        let news: Vec<Polled> = self.inbox.lock().drain(..).collect();
        for event in &news {
            if let Polled::Revoked(partitions) = event {
                self.cursors.retain(|partition, _| !partitions.contains(partition));
            }
        }
        if !news.is_empty() {
            return news;
        }
        if self.process.is_cut() || self.log.is_out() {
            let trouble = Polled::Trouble { partition: None, message: "no broker".into() };
            return if self.log.dice.chance(20) { vec![trouble] } else { Vec::new() };
        }
        self.deliver()
    }

    fn open(&mut self, partition: Partition, from: Offset) {
        let glitches = self.log.state.lock().glitches;
        let former = self.cursors.get(&partition).map(|cursor| cursor.next);
        let stale = former.filter(|_| self.log.dice.chance(glitches.stale));
        tracing::debug!(who = self.process.name(), %partition, %from, ?stale, "opened");
        let cursor = Cursor { next: from.0, paused: false, fresh: true, stale };
        self.cursors.insert(partition, cursor);
    }

    fn pause(&mut self, partition: Partition) {
        if let Some(cursor) = self.cursors.get_mut(&partition) {
            cursor.paused = true;
        }
    }

    fn resume(&mut self, partition: Partition) {
        if let Some(cursor) = self.cursors.get_mut(&partition) {
            cursor.paused = false;
        }
    }
}
