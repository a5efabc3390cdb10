//! The reduce: facts of a subject to one total a kind. Pure.

use std::collections::BTreeMap;

use tally_proto::{AsOf, Epoch, Partition};
use tally_store::FactRow;

/// One counter, reduced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reduced {
    /// The sum of the partials. Wider than a partial: up to 1,024 of them never overflow.
    pub total: i128,
    /// What each partition said: its partial, and the next offset that it does not hold.
    pub shards: Vec<(Partition, i64, AsOf)>,
}

/// Sums the facts of one subject by kind. What a late writer of an epoch before `epoch` said does
/// not count; and of a counter only the highest generation does, so that no half-reset sum is shown.
pub fn reduce(rows: &[FactRow], epoch: Epoch) -> BTreeMap<Box<str>, Reduced> {
    let rows = || rows.iter().filter(|row| row.fact.epoch >= epoch);
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows() {
        let generation = newest.entry(&row.counter.kind).or_default();
        *generation = row.fact.generation.max(*generation);
    }
    let mut reduced: BTreeMap<Box<str>, Reduced> = BTreeMap::new();
    for row in rows() {
        if newest.get(&*row.counter.kind) == Some(&row.fact.generation) {
            let counter = reduced.entry(row.counter.kind.clone()).or_default();
            counter.total += i128::from(row.fact.total);
            counter.shards.push((row.partition, row.fact.total, row.fact.as_of));
        }
    }
    reduced
}

#[cfg(test)]
mod tests {
    use tally_proto::{CounterId, Fact, Lane};

    use super::*;

    fn row(kind: &str, partition: u32, generation: u64, total: i64) -> FactRow {
        let fact = Fact {
            epoch: Epoch::FIRST,
            as_of: AsOf(9),
            generation,
            total,
            members: tally_proto::Members::None,
        };
        let counter = CounterId::new("default", kind, "a").unwrap();
        FactRow { counter, lane: Lane(0), partition: Partition(partition), fact }
    }

    #[test]
    fn a_total_is_the_sum_of_its_partials_and_one_may_be_negative() {
        let rows = [row("view", 0, 0, 5), row("view", 3, 0, -2), row("reply", 0, 0, 1)];
        let reduced = reduce(&rows, Epoch::FIRST);
        assert_eq!(reduced["view"].total, 3);
        assert_eq!(reduced["view"].shards.len(), 2);
        assert_eq!(reduced["reply"].total, 1);
    }

    #[test]
    fn only_the_highest_generation_counts() {
        let rows = [row("view", 0, 0, 500), row("view", 1, 1, 2), row("view", 2, 0, 70)];
        assert_eq!(reduce(&rows, Epoch::FIRST)["view"].total, 2);
    }

    #[test]
    fn what_was_said_in_a_closed_epoch_does_not_count() {
        let rows = [row("view", 0, 0, 500), row("view", 1, 0, 70)];
        assert!(reduce(&rows, Epoch::new(2).unwrap()).is_empty());
    }

    #[test]
    fn a_sum_of_the_largest_partials_does_not_overflow() {
        let rows: Vec<_> = (0..64).map(|p| row("view", p, 0, i64::MAX)).collect();
        assert_eq!(reduce(&rows, Epoch::FIRST)["view"].total, 64 * i128::from(i64::MAX));
    }
}
