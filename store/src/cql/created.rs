//! Table `counters`: what createCounter said; plain rows, overwritten and deleted.

use scylla::statement::prepared::PreparedStatement;
use tally_proto::CounterId;

use super::session::{Cql, decode};
use crate::port::StoreError;
use crate::rows::Created;

pub(super) struct CreatedRows {
    cql: Cql,
    insert: PreparedStatement,
    delete: PreparedStatement,
    select: PreparedStatement,
}

impl CreatedRows {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let insert =
            "INSERT INTO {}.counters (namespace, subject, kind, shards) VALUES (?, ?, ?, ?)";
        let delete = "DELETE FROM {}.counters WHERE namespace = ? AND subject = ? AND kind = ?";
        let select =
            "SELECT shards FROM {}.counters WHERE namespace = ? AND subject = ? AND kind = ?";
        Ok(CreatedRows {
            cql: cql.clone(),
            insert: cql.prepare(insert).await?,
            delete: cql.prepare(delete).await?,
            select: cql.prepare(select).await?,
        })
    }

    pub(super) async fn load(&self, counter: &CounterId) -> Result<Option<Created>, StoreError> {
        let rows = self.cql.rows(&self.select, key(counter)).await?;
        let row = decode::<(i32,)>(&rows)?.pop();
        Ok(row.map(|(shards,)| Created { shards: u32::try_from(shards).unwrap_or(1) }))
    }

    pub(super) async fn write(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError> {
        let (namespace, subject, kind) = key(counter);
        match created {
            Some(Created { shards }) => {
                let shards = i32::try_from(shards).unwrap_or(i32::MAX);
                self.cql.write(&self.insert, (namespace, subject, kind, shards)).await
            }
            None => self.cql.write(&self.delete, (namespace, subject, kind)).await,
        }
    }
}

fn key(counter: &CounterId) -> (&str, &str, &str) {
    (&counter.subject.namespace, &counter.subject.subject, &counter.kind)
}
