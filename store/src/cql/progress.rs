//! Table `progress`: how far each aggregator is; plain rows, overwritten.

use futures::stream::{self, StreamExt, TryStreamExt};
use scylla::statement::prepared::PreparedStatement;
use tally_proto::AsOf;

use super::session::{Cql, decode, partition};
use crate::port::StoreError;
use crate::rows::Progress;

pub(super) struct ProgressRows {
    cql: Cql,
    insert: PreparedStatement,
    select: PreparedStatement,
}

impl ProgressRows {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let insert = "INSERT INTO {}.progress (partition, aggregator, as_of, caught_up_at_ms) \
                      VALUES (?, ?, ?, ?)";
        let select = "SELECT aggregator, as_of, caught_up_at_ms FROM {}.progress \
                      WHERE partition = ?";
        Ok(ProgressRows {
            cql: cql.clone(),
            insert: cql.prepare(insert).await?,
            select: cql.prepare(select).await?,
        })
    }

    pub(super) async fn write(&self, rows: &[Progress]) -> Result<(), StoreError> {
        let writes = rows.iter().cloned().map(|row| async move {
            let at = super::session::number(row.partition);
            let as_of = row.as_of.0.cast_signed();
            self.cql.write(&self.insert, (at, &*row.aggregator, as_of, row.caught_up_at_ms)).await
        });
        stream::iter(writes).buffer_unordered(self.cql.in_flight).try_collect().await
    }

    pub(super) async fn read(&self, partitions: u32) -> Result<Vec<Progress>, StoreError> {
        let reads = (0..partitions).map(|at| async move {
            let at = i32::try_from(at).unwrap_or(i32::MAX);
            let rows = self.cql.rows(&self.select, (at,)).await?;
            let row = |(aggregator, as_of, caught_up_at_ms): (String, i64, i64)| Progress {
                partition: partition(at),
                aggregator: aggregator.into(),
                as_of: AsOf(as_of.cast_unsigned()),
                caught_up_at_ms,
            };
            Ok::<_, StoreError>(decode(&rows)?.into_iter().map(row).collect::<Vec<_>>())
        });
        let rows: Vec<Vec<Progress>> =
            stream::iter(reads).buffer_unordered(64).try_collect().await?;
        Ok(rows.into_iter().flatten().collect())
    }
}
