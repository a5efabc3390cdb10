//! Table `facts`: what each partition says of a counter; a subject is one store partition.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use scylla::statement::prepared::PreparedStatement;
use tally_proto::limits::MAX_LANES;
use tally_proto::{CounterId, Fact, Lane, Partition, PositionError, Stamp, SubjectId, check_name};

use super::session::{Cql, LOADS_IN_FLIGHT, batches, decode, number, partition};
use crate::port::StoreError;
use crate::rows::FactRow;

pub(super) struct Facts {
    cql: Cql,
    update: PreparedStatement,
    select: PreparedStatement,
    select_subject: PreparedStatement,
    select_subjects: PreparedStatement,
    select_subjects_after: PreparedStatement,
    lanes: Vec<i8>,
}

/// Stamp, fact, namespace, subject, kind, lane, partition.
type Values<'r> = (i64, Vec<u8>, &'r str, &'r str, &'r str, i8, i32);

impl Facts {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let update = "UPDATE {}.facts USING TIMESTAMP ? SET fact = ? WHERE namespace = ? \
                      AND subject = ? AND kind = ? AND lane = ? AND partition = ?";
        let select = "SELECT lane, fact, WRITETIME(fact) FROM {}.facts WHERE namespace = ? \
                      AND subject = ? AND kind = ? AND lane IN ? AND partition = ?";
        let select_subject = "SELECT kind, lane, partition, fact, WRITETIME(fact) FROM {}.facts \
                              WHERE namespace = ? AND subject = ?";
        let subjects = "SELECT DISTINCT namespace, subject FROM {}.facts LIMIT ?";
        let subjects_after = "SELECT DISTINCT namespace, subject FROM {}.facts \
                              WHERE token(namespace, subject) > token(?, ?) LIMIT ?";
        Ok(Facts {
            cql: cql.clone(),
            update: cql.prepare(update).await?,
            select: cql.prepare(select).await?,
            select_subject: cql.prepare(select_subject).await?,
            select_subjects: cql.prepare(subjects).await?,
            select_subjects_after: cql.prepare(subjects_after).await?,
            lanes: (0..MAX_LANES).map(u8::cast_signed).collect(),
        })
    }

    /// All rows of one store partition go in one batch; many batches are in flight.
    pub(super) async fn write(&self, rows: &[FactRow]) -> Result<(), StoreError> {
        let batches = batches(rows.iter().map(|row| &row.counter.subject));
        let writes = batches.into_iter().map(|batch| self.write_batch(rows, batch));
        stream::iter(writes).buffer_unordered(self.cql.in_flight).try_collect().await
    }

    async fn write_batch(&self, rows: &[FactRow], batch: Vec<usize>) -> Result<(), StoreError> {
        let batch: Vec<Values<'_>> =
            batch.into_iter().map(|at| values(&rows[at])).collect::<Result<_, _>>()?;
        self.cql.write_batch(&self.update, &batch).await
    }

    pub(super) async fn load(
        &self,
        partition: Partition,
        counters: &[CounterId],
    ) -> Result<Vec<Option<(Lane, Fact)>>, StoreError> {
        let loads = counters.iter().cloned().map(|counter| self.load_one(partition, counter));
        stream::iter(loads).buffered(LOADS_IN_FLIGHT).try_collect().await
    }

    async fn load_one(
        &self,
        partition: Partition,
        counter: CounterId,
    ) -> Result<Option<(Lane, Fact)>, StoreError> {
        let SubjectId { namespace, subject } = &counter.subject;
        let key = (&**namespace, &**subject, &*counter.kind, &self.lanes, number(partition));
        let rows = self.cql.rows(&self.select, key).await?;
        let mut found = None;
        for (lane, blob, written_at) in decode::<(i8, Option<Vec<u8>>, Option<i64>)>(&rows)? {
            let (Some(blob), Some(written_at)) = (blob, written_at) else { continue };
            let lane = Lane(lane.cast_unsigned());
            // A poisoned row of a lane that was given up hurts nobody.
            found = Some((lane, blob, written_at)).max(found.take());
        }
        let name = || format!("{counter} in partition {partition}");
        found.map(|(lane, blob, at)| Ok((lane, read(name, lane, &blob, at)?))).transpose()
    }

    /// In the order of the store's own hashes.
    pub(super) async fn list_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let mut after = after.cloned();
        loop {
            let mut subjects = self.page_of_subjects(after.as_ref(), limit).await?;
            after = subjects.last().cloned();
            // What the start-up check wrote is no subject; a page of nothing else is not the end.
            let is_last = subjects.is_empty();
            subjects.retain(|id| check_name(&id.namespace).is_ok());
            if is_last || !subjects.is_empty() {
                return Ok(subjects);
            }
        }
    }

    async fn page_of_subjects(
        &self,
        after: Option<&SubjectId>,
        limit: usize,
    ) -> Result<Vec<SubjectId>, StoreError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let rows = match after {
            None => self.cql.rows(&self.select_subjects, (limit,)).await?,
            Some(SubjectId { namespace, subject }) => {
                let values = (&**namespace, &**subject, limit);
                self.cql.rows(&self.select_subjects_after, values).await?
            }
        };
        let subject = |(namespace, subject): (String, String)| SubjectId {
            namespace: namespace.into(),
            subject: subject.into(),
        };
        Ok(decode(&rows)?.into_iter().map(subject).collect())
    }

    pub(super) async fn read_subject(&self, id: &SubjectId) -> Result<Vec<FactRow>, StoreError> {
        type Row = (String, i8, i32, Option<Vec<u8>>, Option<i64>);
        let key = (&*id.namespace, &*id.subject);
        let rows = self.cql.rows(&self.select_subject, key).await?;
        let mut newest: BTreeMap<(String, Partition), (Lane, Vec<u8>, i64)> = BTreeMap::new();
        for (kind, lane, at, blob, written_at) in decode::<Row>(&rows)? {
            let (Some(blob), Some(written_at)) = (blob, written_at) else { continue };
            // Within a kind, lanes come in rising order: a later one replaces the former.
            let lane = Lane(lane.cast_unsigned());
            newest.insert((kind, partition(at)), (lane, blob, written_at));
        }
        let row =
            |((kind, partition), (lane, blob, written_at)): ((String, _), (_, Vec<u8>, _))| {
                let counter = CounterId { subject: id.clone(), kind: kind.into() };
                let name = || format!("{counter} in partition {partition}");
                let fact = read(name, lane, &blob, written_at)?;
                Ok(FactRow { counter, lane, partition, fact })
            };
        newest.into_iter().map(row).collect()
    }
}

fn values(row: &FactRow) -> Result<Values<'_>, StoreError> {
    let stamp = row.fact.stamp().map_err(|error| StoreError::Unreadable {
        row: row.counter.to_string(),
        error: error.into(),
    })?;
    let SubjectId { namespace, subject } = &row.counter.subject;
    let blob = row.fact.encode().to_vec();
    let (lane, at) = (row.lane.0.cast_signed(), number(row.partition));
    Ok((stamp.raw(), blob, namespace, subject, &row.counter.kind, lane, at))
}

/// The fact of a cell, if the cell was written under the fact's own stamp.
fn read(
    name: impl Fn() -> String,
    lane: Lane,
    blob: &[u8],
    written_at: i64,
) -> Result<Fact, StoreError> {
    let fact = Fact::decode(blob).map_err(|error| StoreError::Unreadable { row: name(), error })?;
    check_stamp(name, Some(lane), fact.stamp(), written_at)?;
    Ok(fact)
}

/// A cell that was written under another timestamp than its stamp would hide later facts.
pub(super) fn check_stamp(
    name: impl Fn() -> String,
    lane: Option<Lane>,
    stamp: Result<Stamp, PositionError>,
    written_at: i64,
) -> Result<(), StoreError> {
    match stamp {
        Ok(stamp) if stamp.raw() == written_at => Ok(()),
        Ok(stamp) => Err(StoreError::Poisoned { row: name(), lane, written_at, says: stamp.raw() }),
        Err(error) => Err(StoreError::Unreadable { row: name(), error: error.into() }),
    }
}
