//! Table `dead_letters`: what could not be counted, by partition and day.

use futures::stream::{self, StreamExt, TryStreamExt};
use scylla::statement::prepared::PreparedStatement;
use tally_proto::{Offset, Partition};

use super::session::{Cql, decode, number};
use crate::port::StoreError;
use crate::rows::DeadLetter;

/// Writes in flight: values may be as large as records.
const WRITES_IN_FLIGHT: usize = 16;

pub(super) struct DeadLetters {
    cql: Cql,
    insert: PreparedStatement,
    select: PreparedStatement,
}

impl DeadLetters {
    pub(super) async fn prepare(cql: &Cql) -> Result<Self, StoreError> {
        let insert = "INSERT INTO {}.dead_letters (partition, day, record_offset, record_index, \
                      append_time_ms, code, reason, key, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let select = "SELECT record_offset, record_index, append_time_ms, code, reason, key, value \
                      FROM {}.dead_letters WHERE partition = ? AND day = ? LIMIT ?";
        Ok(DeadLetters {
            cql: cql.clone(),
            insert: cql.prepare(insert).await?,
            select: cql.prepare(select).await?,
        })
    }

    pub(super) async fn write(&self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        let writes = letters.iter().cloned().map(|letter| async move {
            let place = (letter.offset.0.cast_signed(), letter.index.cast_signed());
            let values = (
                number(letter.partition),
                letter.day(),
                place.0,
                place.1,
                letter.append_time_ms,
                &*letter.code,
                &*letter.reason,
                letter.key.as_ref(),
                letter.value.as_ref(),
            );
            self.cql.write(&self.insert, values).await
        });
        stream::iter(writes).buffer_unordered(WRITES_IN_FLIGHT).try_collect().await
    }

    pub(super) async fn read(
        &self,
        partition: Partition,
        day: i32,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        type Row = (i64, i32, i64, String, String, Vec<u8>, Vec<u8>);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let rows = self.cql.rows(&self.select, (number(partition), day, limit)).await?;
        let letter = |(offset, index, append_time_ms, code, reason, key, value): Row| DeadLetter {
            partition,
            offset: Offset(offset.cast_unsigned()),
            index: index.cast_unsigned(),
            append_time_ms,
            code: code.into(),
            reason: reason.into(),
            key: key.into(),
            value: value.into(),
        };
        Ok(decode(&rows)?.into_iter().map(letter).collect())
    }
}
