//! Table `checkpoints`: a fact about each partition, written under its stamp.

use scylla::statement::prepared::PreparedStatement;
use tally_proto::{Checkpoint, Partition};

use super::facts::check_stamp;
use super::session::{Cql, decode, number};
use crate::port::StoreError;

pub(super) struct Checkpoints {
    cql: Cql,
    update: PreparedStatement,
    select: PreparedStatement,
}

impl Checkpoints {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let update =
            "UPDATE {}.checkpoints USING TIMESTAMP ? SET checkpoint = ? WHERE partition = ?";
        let select =
            "SELECT checkpoint, WRITETIME(checkpoint) FROM {}.checkpoints WHERE partition = ?";
        Ok(Checkpoints {
            cql: cql.clone(),
            update: cql.prepare(update).await?,
            select: cql.prepare(select).await?,
        })
    }

    pub(super) async fn load(
        &self,
        partition: Partition,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let rows = self.cql.rows(&self.select, (number(partition),)).await?;
        let row = decode::<(Option<Vec<u8>>, Option<i64>)>(&rows)?.pop();
        let Some((Some(blob), Some(written_at))) = row else { return Ok(None) };
        let name = || format!("checkpoint of partition {partition}");
        let checkpoint = Checkpoint::decode(&blob)
            .map_err(|error| StoreError::Unreadable { row: name(), error })?;
        check_stamp(name, None, checkpoint.stamp(), written_at)?;
        Ok(Some(checkpoint))
    }

    pub(super) async fn write(
        &self,
        partition: Partition,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        let stamp = checkpoint.stamp().map_err(|error| StoreError::Unreadable {
            row: format!("checkpoint of partition {partition}"),
            error: error.into(),
        })?;
        let blob = checkpoint.encode();
        self.cql.write(&self.update, (stamp.raw(), blob.as_ref(), number(partition))).await
    }
}
