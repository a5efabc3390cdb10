//! Watching: whether the log is still the one that was folded, where it ends, and since when each
//! partition is caught up.

use std::time::Duration;

use tally_proto::{Offset, Partition};
use tally_store::Progress;

use super::Runner;
use crate::metrics::of;
use crate::owned::{Owned, Phase};
use crate::recognise::Known;

/// Rows that are read back with each comparison.
const SAMPLE: usize = 16;

impl Runner {
    pub(super) fn recognise_if_due(&mut self, partition: Partition, now: Duration) {
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        let assignment = owned.assignment;
        if owned.engine().is_none() || !owned.begin_recognising(now) {
            return;
        }
        let Some(engine) = owned.engine() else { return };
        let known = Known {
            next: engine.next(),
            last: engine.last(),
            acknowledged: self.floors.get(&partition).copied().unwrap_or_default(),
            durable: engine.durable(),
            sample: engine.take_sample(SAMPLE),
        };
        let task = self.work.clone().recognise(partition, known);
        self.send(partition, assignment, task);
    }

    /// Asks where the log ends by now: once that is durable, the partition was caught up by now.
    pub(super) fn ask_ends(&mut self) {
        let running = |(partition, owned): (&Partition, &Owned)| {
            matches!(owned.phase, Phase::Running(_)).then_some(*partition)
        };
        let running: Vec<Partition> = self.owned.iter().filter_map(running).collect();
        // While a former question is not answered the log is slow or away: do not pile up more.
        if self.ends.is_empty() && !running.is_empty() {
            self.ends.spawn(self.work.clone().ends(running));
        }
    }

    pub(super) fn on_ends(&mut self, ends: Vec<(Partition, i64, Offset)>) {
        for (partition, at_ms, end) in ends {
            let Some(owned) = self.owned.get_mut(&partition) else { continue };
            owned.caught_up.observe(at_ms, end);
            let Some(engine) = owned.engine() else { continue };
            let lag = end.0.saturating_sub(engine.durable().0);
            let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            let (metrics, label) = (&self.metrics, of(partition));
            metrics.lag.get_or_create(&label).set(gauge(lag));
            metrics.next_offset.get_or_create(&label).set(gauge(engine.next().0));
            let counters = engine.counters() as u64;
            metrics.counters.get_or_create(&label).set(gauge(counters));
            metrics.events.inc_by(engine.take_folded_events());
            metrics.repeats.inc_by(engine.take_repeats());
            let next = engine.next();
            let waits_for_records = next == engine.durable() || engine.is_refilling();
            if waits_for_records && end > next.next() && owned.caught_up.stands_at(end) {
                let assignment = owned.assignment;
                let task = self.work.clone().look_at_tail(partition, next, end);
                self.send(partition, assignment, task);
            }
        }
    }

    /// Writes how far every partition is.
    pub(super) fn write_progress(&mut self) {
        let mut rows = Vec::new();
        for (partition, owned) in &mut self.owned {
            let Phase::Running(engine) = &owned.phase else { continue };
            owned.caught_up.advance(engine.durable(), engine.durable_append_time_ms());
            rows.push(Progress {
                partition: *partition,
                aggregator: self.id.clone(),
                as_of: engine.durable(),
                caught_up_at_ms: owned.caught_up.at_ms(),
            });
        }
        rows.retain(|row| row.caught_up_at_ms > 0);
        if self.progress.is_empty() && !rows.is_empty() {
            self.progress.spawn(self.work.clone().progress(rows));
        }
    }
}
