//! Table `layout`: one row, written once by a lightweight transaction.

use scylla::statement::prepared::PreparedStatement;
use tally_proto::{BlobError, Layout};

use super::session::{Cql, decode};
use crate::port::StoreError;

pub(super) struct Layouts {
    cql: Cql,
    insert: PreparedStatement,
    select: PreparedStatement,
}

impl Layouts {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let insert = "INSERT INTO {}.layout (id, layout) VALUES (0, ?) IF NOT EXISTS";
        // A serial read sees every transaction that was acknowledged.
        let mut select = cql.prepare("SELECT layout FROM {}.layout WHERE id = 0").await?;
        select.set_consistency(scylla::statement::Consistency::Serial);
        Ok(Layouts { cql: cql.clone(), insert: cql.prepare(insert).await?, select })
    }

    pub(super) async fn load(&self) -> Result<Option<Layout>, StoreError> {
        let rows = self.cql.rows(&self.select, ()).await?;
        let Some((json,)) = decode::<(String,)>(&rows)?.pop() else { return Ok(None) };
        serde_json::from_str(&json).map(Some).map_err(|error| StoreError::Unreadable {
            row: "layout".into(),
            error: BlobError::Damaged(error.to_string()),
        })
    }

    /// Writes the layout unless there is one; either way, the one in force is read back.
    pub(super) async fn create(&self, layout: &Layout) -> Result<Layout, StoreError> {
        let json = serde_json::to_string(layout).expect("numbers and texts become JSON");
        self.cql.write(&self.insert, (json,)).await?;
        let written = self.load().await?;
        written.ok_or_else(|| StoreError::Unavailable("the layout was not written".into()))
    }
}
