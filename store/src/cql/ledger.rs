//! Table `ledger`: who is in, once a counter has too many actors to list them in its fact.

use futures::stream::{self, StreamExt, TryStreamExt};
use scylla::statement::prepared::PreparedStatement;
use tally_proto::{CounterId, LedgerEntry, SubjectId};

use super::facts::check_stamp;
use super::session::{Cql, LOADS_IN_FLIGHT, batches, decode};
use crate::port::StoreError;
use crate::rows::LedgerRow;

pub(super) struct Ledger {
    cql: Cql,
    update: PreparedStatement,
    select: PreparedStatement,
    select_bucket: PreparedStatement,
}

/// Stamp, entry, namespace, subject, kind, bucket, actor.
type Values<'r> = (i64, Vec<u8>, &'r str, &'r str, &'r str, i32, &'r str);

impl Ledger {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let update = "UPDATE {}.ledger USING TIMESTAMP ? SET entry = ? WHERE namespace = ? \
                      AND subject = ? AND kind = ? AND bucket = ? AND actor = ?";
        let select = "SELECT entry, WRITETIME(entry) FROM {}.ledger WHERE namespace = ? \
                      AND subject = ? AND kind = ? AND bucket = ? AND actor = ?";
        let select_bucket = "SELECT actor, entry, WRITETIME(entry) FROM {}.ledger WHERE namespace = ? \
                             AND subject = ? AND kind = ? AND bucket = ? AND actor > ? LIMIT ?";
        Ok(Ledger {
            cql: cql.clone(),
            update: cql.prepare(update).await?,
            select: cql.prepare(select).await?,
            select_bucket: cql.prepare(select_bucket).await?,
        })
    }

    /// All rows of one store partition go in one batch; many batches are in flight.
    pub(super) async fn write(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        let bucket = |row: &LedgerRow| LedgerEntry::bucket(&row.actor);
        let batches = batches(rows.iter().map(|row| (&row.counter, bucket(row))));
        let writes = batches.into_iter().map(|batch| self.write_batch(rows, batch));
        stream::iter(writes).buffer_unordered(self.cql.in_flight).try_collect().await
    }

    async fn write_batch(&self, rows: &[LedgerRow], batch: Vec<usize>) -> Result<(), StoreError> {
        let batch: Vec<Values<'_>> =
            batch.into_iter().map(|at| values(&rows[at])).collect::<Result<_, _>>()?;
        self.cql.write_batch(&self.update, &batch).await
    }

    pub(super) async fn load(
        &self,
        counter: &CounterId,
        actors: &[Box<str>],
    ) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
        let loads = actors.iter().cloned().map(|actor| self.load_one(counter.clone(), actor));
        stream::iter(loads).buffered(LOADS_IN_FLIGHT).try_collect().await
    }

    async fn load_one(
        &self,
        counter: CounterId,
        actor: Box<str>,
    ) -> Result<Option<LedgerEntry>, StoreError> {
        let SubjectId { namespace, subject } = &counter.subject;
        let bucket = number(LedgerEntry::bucket(&actor));
        let key = (&**namespace, &**subject, &*counter.kind, bucket, &*actor);
        let rows = self.cql.rows(&self.select, key).await?;
        let row = decode::<(Option<Vec<u8>>, Option<i64>)>(&rows)?.pop();
        let Some((Some(blob), Some(written_at))) = row else { return Ok(None) };
        read(&counter, &actor, &blob, written_at).map(Some)
    }

    pub(super) async fn list(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        let SubjectId { namespace, subject } = &counter.subject;
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let (bucket, after) = (number(bucket), after.unwrap_or_default());
        let key = (&**namespace, &**subject, &*counter.kind, bucket, after, limit);
        let rows = self.cql.rows(&self.select_bucket, key).await?;
        let mut entries = Vec::new();
        for (actor, blob, written_at) in decode::<(String, Option<Vec<u8>>, Option<i64>)>(&rows)? {
            let (Some(blob), Some(written_at)) = (blob, written_at) else { continue };
            let entry = read(counter, &actor, &blob, written_at)?;
            entries.push((actor.into(), entry));
        }
        Ok(entries)
    }
}

/// The entry of a cell, if the cell was written under the entry's own stamp.
fn read(
    counter: &CounterId,
    actor: &str,
    blob: &[u8],
    written_at: i64,
) -> Result<LedgerEntry, StoreError> {
    let name = || format!("{actor} of {counter}");
    let entry =
        LedgerEntry::decode(blob).map_err(|error| StoreError::Unreadable { row: name(), error })?;
    check_stamp(name, None, entry.stamp(), written_at)?;
    Ok(entry)
}

fn values(row: &LedgerRow) -> Result<Values<'_>, StoreError> {
    let stamp = row.entry.stamp().map_err(|error| StoreError::Unreadable {
        row: format!("{} of {}", row.actor, row.counter),
        error: error.into(),
    })?;
    let SubjectId { namespace, subject } = &row.counter.subject;
    let blob = row.entry.encode().to_vec();
    let bucket = number(LedgerEntry::bucket(&row.actor));
    Ok((stamp.raw(), blob, namespace, subject, &row.counter.kind, bucket, &row.actor))
}

/// A bucket as a CQL int; there are few.
fn number(bucket: u32) -> i32 {
    i32::try_from(bucket).unwrap_or(0)
}
