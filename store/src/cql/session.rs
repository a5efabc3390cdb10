//! The session: consistency on every statement, bounded writes in flight, errors by what to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use tally_proto::Partition;
use tokio::sync::Semaphore;

use super::settings::CqlSettings;
use crate::port::StoreError;

/// Longer than a server's own limits (2 s for a write, 5 s for a read): when this runs out, the
/// server has given up as well.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);

/// A session, and what its keyspace is called. Clones share it.
#[derive(Clone)]
pub(super) struct Cql {
    pub(super) session: Arc<Session>,
    pub(super) keyspace: String,
    /// Writes in flight, over all callers.
    permits: Arc<Semaphore>,
    pub(super) in_flight: usize,
}

impl Cql {
    pub(super) async fn connect(settings: &CqlSettings) -> Result<Self, StoreError> {
        let Some(contact_points) = &settings.contact_points else {
            return Err(StoreError::Unsuitable("cql.contact_points is not set".into()));
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if settings.keyspace.is_empty() || !settings.keyspace.chars().all(is_name) {
            let why = format!("cql.keyspace = '{}' is no name of a keyspace", settings.keyspace);
            return Err(StoreError::Unsuitable(why));
        }
        let mut balancing = DefaultPolicy::builder().token_aware(true);
        if let Some(local_dc) = &settings.local_dc {
            balancing = balancing.prefer_datacenter(local_dc.clone());
        }
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(REQUEST_TIMEOUT))
            .load_balancing_policy(balancing.build())
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(contact_points.split(',').map(str::trim))
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(Duration::from_secs(3))
            .tcp_nodelay(true);
        if let (Some(user), Some(password)) = (&settings.username, &settings.password) {
            builder = builder.user(user, password);
        }
        let session = builder.build().await.map_err(unavailable)?;
        Ok(Cql {
            session: Arc::new(session),
            keyspace: settings.keyspace.clone(),
            permits: Arc::new(Semaphore::new(settings.writes_in_flight.max(1))),
            in_flight: settings.writes_in_flight.max(1),
        })
    }

    /// Prepares a statement; `{}` in its text is the keyspace. All are idempotent: facts by their
    /// stamps, plain rows because they are overwritten.
    pub(super) async fn prepare(&self, text: &str) -> Result<PreparedStatement, StoreError> {
        let text = text.replace("{}", &self.keyspace);
        let mut statement = self.session.prepare(text).await.map_err(not_prepared)?;
        statement.set_consistency(Consistency::Quorum);
        statement.set_is_idempotent(true);
        Ok(statement)
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn rows(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, StoreError> {
        let result =
            self.session.execute_unpaged(statement, values).await.map_err(|e| failed(&e))?;
        into_rows(result)
    }

    /// Runs a statement that writes, when its turn has come.
    pub(super) async fn write(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), StoreError> {
        let _permit = self.permits.acquire().await.map_err(unavailable)?;
        self.session.execute_unpaged(statement, values).await.map_err(|e| failed(&e))?;
        Ok(())
    }

    /// Runs one statement with several rows of one store partition, as one message.
    pub(super) async fn write_batch<V: SerializeRow>(
        &self,
        statement: &PreparedStatement,
        rows: &[V],
    ) -> Result<(), StoreError> {
        if let [row] = rows {
            return self.write(statement, row).await;
        }
        let _permit = self.permits.acquire().await.map_err(unavailable)?;
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(Consistency::Quorum);
        batch.set_is_idempotent(true);
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        self.session.batch(&batch, rows).await.map_err(|e| failed(&e))?;
        Ok(())
    }

    /// Runs a statement that is not worth preparing.
    pub(super) async fn query(&self, text: &str) -> Result<QueryResult, StoreError> {
        let text = text.replace("{}", &self.keyspace);
        self.session.query_unpaged(text, ()).await.map_err(|error| failed(&error))
    }
}

/// Rows of one batch: far below the size at which servers warn (5 kB).
const BATCH_ROWS: usize = 32;

/// Reads in flight of one load.
pub(super) const LOADS_IN_FLIGHT: usize = 64;

/// Rows by their place, as batches of one store partition each; `keys` are their partitions.
pub(super) fn batches<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<Vec<usize>> {
    let mut by_partition: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (at, key) in keys.enumerate() {
        by_partition.entry(key).or_default().push(at);
    }
    let of_one = |rows: Vec<usize>| rows.chunks(BATCH_ROWS).map(<[_]>::to_vec).collect::<Vec<_>>();
    by_partition.into_values().flat_map(of_one).collect()
}

pub(super) fn into_rows(result: QueryResult) -> Result<QueryRowsResult, StoreError> {
    result.into_rows_result().map_err(unavailable)
}

/// The rows of a result, decoded.
pub(super) fn decode<'r, R>(rows: &'r QueryRowsResult) -> Result<Vec<R>, StoreError>
where
    R: DeserializeRow<'r, 'r>,
{
    let unsuitable = |error: &dyn std::fmt::Display| StoreError::Unsuitable(error.to_string());
    let rows = rows.rows::<R>().map_err(|error| unsuitable(&error))?;
    rows.map(|row| row.map_err(|error| unsuitable(&error))).collect()
}

/// A partition as a CQL int; there are at most 1,024.
pub(super) fn number(partition: Partition) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

/// The partition of a CQL int.
pub(super) fn partition(number: i32) -> Partition {
    Partition(u32::try_from(number).unwrap_or(u32::MAX))
}

pub(super) fn unavailable(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn not_prepared(error: PrepareError) -> StoreError {
    match &error {
        PrepareError::AllAttemptsFailed {
            first_attempt:
                RequestAttemptError::DbError(db @ (DbError::Invalid | DbError::SyntaxError), message),
        } => StoreError::Unsuitable(format!("{db}: {message}")),
        _ => unavailable(error),
    }
}

/// What a failed request means: nearly always, try again; what is wrong with the statement or with
/// our rights stays wrong.
pub(super) fn failed(error: &ExecutionError) -> StoreError {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            db @ (DbError::Invalid
            | DbError::SyntaxError
            | DbError::Unauthorized
            | DbError::ConfigError),
            message,
        )) => StoreError::Unsuitable(format!("{db}: {message}")),
        _ => unavailable(error),
    }
}
