//! The watermark: a time before which everything is in the facts of every partition.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use tally_proto::Partition;
use tally_store::Progress;

/// How far all partitions are, as last read from their progress rows.
#[derive(Debug, Default)]
pub(crate) struct Watermark(RwLock<Option<i64>>);

impl Watermark {
    /// Everything appended before it is in the facts that are read from now on, in milliseconds
    /// since 1970; `None` while a partition has never been covered.
    pub(crate) fn get(&self) -> Option<i64> {
        *self.0.read()
    }

    /// Takes in what the progress rows say.
    pub(crate) fn update(&self, rows: &[Progress], partitions: u32) {
        *self.0.write() = least(rows, partitions);
    }
}

/// The least over the partitions of the best that anybody says of each.
fn least(rows: &[Progress], partitions: u32) -> Option<i64> {
    let mut best: BTreeMap<Partition, i64> = BTreeMap::new();
    for row in rows {
        let at = best.entry(row.partition).or_insert(row.caught_up_at_ms);
        *at = row.caught_up_at_ms.max(*at);
    }
    (0..partitions).map(|p| best.get(&Partition(p)).copied()).min().flatten()
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
        let rows = [row(0, "old", 100), row(0, "new", 900), row(1, "old", 800)];
        assert_eq!(least(&rows, 2), Some(800));
        assert_eq!(least(&rows, 3), None, "partition 2 is covered by nobody");
        assert_eq!(least(&[], 1), None);
    }
}
