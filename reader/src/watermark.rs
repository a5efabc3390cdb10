//! The watermark: a time before which everything is in the facts of every partition.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use tally_proto::Partition;
use tally_store::Progress;

/// How far each partition is: the best that any of its owners ever said, since what was true of a
/// time stays true.
#[derive(Debug, Default)]
pub(crate) struct Watermark(RwLock<BTreeMap<Partition, i64>>);

impl Watermark {
    /// Everything appended before it is in the facts that are read from now on, in milliseconds
    /// since 1970; `None` while one of `partitions` partitions has never been covered.
    pub(crate) fn get(&self, partitions: u32) -> Option<i64> {
        let best = self.0.read();
        (0..partitions).map(|p| best.get(&Partition(p)).copied()).min().flatten()
    }

    /// Takes in what the progress rows say.
    pub(crate) fn update(&self, rows: &[Progress]) {
        let mut best = self.0.write();
        for row in rows {
            let at = best.entry(row.partition).or_insert(row.caught_up_at_ms);
            *at = row.caught_up_at_ms.max(*at);
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_proto::AsOf;

    use super::*;

    fn row(partition: u32, aggregator: &str, caught_up_at_ms: i64) -> Progress {
        let partition = Partition(partition);
        Progress { partition, aggregator: aggregator.into(), as_of: AsOf(1), caught_up_at_ms }
    }

    #[test]
    fn the_watermark_is_the_least_over_partitions_of_the_best_owner() {
        let watermark = Watermark::default();
        assert_eq!(watermark.get(1), None);
        watermark.update(&[row(0, "old", 100), row(0, "new", 900), row(1, "old", 800)]);
        assert_eq!(watermark.get(2), Some(800));
        assert_eq!(watermark.get(3), None, "partition 2 is covered by nobody");
    }

    #[test]
    fn the_watermark_does_not_go_back_when_an_owner_starts_again() {
        let watermark = Watermark::default();
        watermark.update(&[row(0, "a", 900)]);
        watermark.update(&[row(0, "a", 300)]);
        assert_eq!(watermark.get(1), Some(900));
    }
}
