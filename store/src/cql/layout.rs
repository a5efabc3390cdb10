//! Table `layout`: one row, written by lightweight transactions alone.

use scylla::statement::prepared::PreparedStatement;
use tally_proto::{BlobError, Layout};

use super::session::{Cql, decode};
use crate::port::StoreError;

pub(super) struct Layouts {
    cql: Cql,
    insert: PreparedStatement,
    update: PreparedStatement,
    select: PreparedStatement,
}

impl Layouts {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let insert = "INSERT INTO {}.layout (id, layout) VALUES (0, ?) IF NOT EXISTS";
        let update = "UPDATE {}.layout SET layout = ? WHERE id = 0 IF layout = ?";
        // A serial read sees every transaction that was acknowledged.
        let mut select = cql.prepare("SELECT layout FROM {}.layout WHERE id = 0").await?;
        select.set_consistency(scylla::statement::Consistency::Serial);
        let (insert, update) = (cql.prepare(insert).await?, cql.prepare(update).await?);
        Ok(Layouts { cql: cql.clone(), insert, update, select })
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
        self.cql.write(&self.insert, (json(layout),)).await?;
        self.in_force().await
    }

    /// Writes the new layout if the old one is in force; either way, the one in force is read back.
    pub(super) async fn replace(&self, old: &Layout, new: &Layout) -> Result<Layout, StoreError> {
        self.cql.write(&self.update, (json(new), json(old))).await?;
        self.in_force().await
    }

    async fn in_force(&self) -> Result<Layout, StoreError> {
        let written = self.load().await?;
        written.ok_or_else(|| StoreError::Unavailable("the layout was not written".into()))
    }
}

fn json(layout: &Layout) -> String {
    serde_json::to_string(layout).expect("numbers and texts become JSON")
}
