//! Migrations: numbered steps, each applied once, under a lock, with a checksum of its text.

use std::time::Duration;

use scylla::statement::prepared::PreparedStatement;
use tally_service::clock::sleep;
use uuid::Uuid;

use super::session::{Cql, decode, into_rows};
use super::settings::CqlSettings;
use crate::port::StoreError;

/// The steps, oldest first. One that was released is never changed; a new one is added.
const STEPS: [&str; 7] = [
    "CREATE TABLE IF NOT EXISTS {}.layout (id int PRIMARY KEY, layout text)",
    "CREATE TABLE IF NOT EXISTS {}.checkpoints (partition int PRIMARY KEY, checkpoint blob)",
    "CREATE TABLE IF NOT EXISTS {}.progress (partition int, aggregator text, as_of bigint, \
     caught_up_at_ms bigint, PRIMARY KEY (partition, aggregator))",
    "CREATE TABLE IF NOT EXISTS {}.facts (namespace text, subject text, kind text, lane tinyint, \
     partition int, fact blob, PRIMARY KEY ((namespace, subject), kind, lane, partition)) \
     WITH compaction = {'class': 'LeveledCompactionStrategy'}",
    "CREATE TABLE IF NOT EXISTS {}.dead_letters (partition int, day int, record_offset bigint, \
     record_index int, append_time_ms bigint, code text, reason text, key blob, value blob, \
     PRIMARY KEY ((partition, day), record_offset, record_index))",
    "CREATE TABLE IF NOT EXISTS {}.ledger (namespace text, subject text, kind text, bucket int, \
     actor text, entry blob, PRIMARY KEY ((namespace, subject, kind, bucket), actor)) \
     WITH compaction = {'class': 'LeveledCompactionStrategy'}",
    "CREATE TABLE IF NOT EXISTS {}.counters (namespace text, subject text, kind text, shards int, \
     PRIMARY KEY ((namespace, subject), kind))",
];

const MIGRATIONS: &str =
    "CREATE TABLE IF NOT EXISTS {}.migrations (id int PRIMARY KEY, checksum bigint)";
const LOCK: &str = "CREATE TABLE IF NOT EXISTS {}.migration_lock (id int PRIMARY KEY, owner text)";

/// How long a lock stands whose owner has died, in seconds.
const LOCK_TTL_S: u32 = 60;

/// Creates the keyspace; says whether it was not there.
pub(super) async fn create_keyspace(
    cql: &Cql,
    settings: &CqlSettings,
    allow_single_replica: bool,
) -> Result<bool, StoreError> {
    let copies = settings.replication_factor;
    if copies < 3 && !allow_single_replica {
        return Err(StoreError::Unsuitable(format!(
            "cql.replication_factor = {copies} can lose facts: use 3 (or say that one copy is \
             enough: allow_single_replica = true)"
        )));
    }
    let select = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{}'";
    let known = into_rows(cql.query(select).await?)?;
    if known.rows_num() > 0 {
        return Ok(false);
    }
    cql.query(&format!(
        "CREATE KEYSPACE IF NOT EXISTS {{}} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
    ))
    .await?;
    Ok(true)
}

/// Applies the steps that are missing, one process at a time; returns how many.
pub(super) async fn apply(cql: &Cql) -> Result<usize, StoreError> {
    cql.query(MIGRATIONS).await?;
    cql.query(LOCK).await?;
    let owner = Uuid::new_v4().to_string();
    lock(cql, &owner).await?;
    let applied = apply_locked(cql).await;
    let unlock = "DELETE FROM {}.migration_lock WHERE id = 0 IF owner = ?";
    cql.write(&cql.prepare(unlock).await?, (&owner,)).await?;
    applied
}

async fn apply_locked(cql: &Cql) -> Result<usize, StoreError> {
    let known = known(cql).await?;
    let insert = cql.prepare("INSERT INTO {}.migrations (id, checksum) VALUES (?, ?)").await?;
    let mut applied = 0;
    for (id, step) in (1i32..).zip(STEPS).skip(known.len()) {
        cql.query(step).await?; // the driver waits until all nodes agree on the schema
        cql.write(&insert, (id, checksum(step))).await?;
        applied += 1;
    }
    Ok(applied)
}

/// Takes the lock, waiting for another `tally setup` if need be.
async fn lock(cql: &Cql, owner: &str) -> Result<(), StoreError> {
    let insert = format!(
        "INSERT INTO {{}}.migration_lock (id, owner) VALUES (0, ?) IF NOT EXISTS \
         USING TTL {LOCK_TTL_S}"
    );
    let insert: PreparedStatement = cql.prepare(&insert).await?;
    let mut select = cql.prepare("SELECT owner FROM {}.migration_lock WHERE id = 0").await?;
    select.set_consistency(scylla::statement::Consistency::Serial);
    for _ in 0..u64::from(LOCK_TTL_S) * 2 {
        cql.write(&insert, (owner,)).await?;
        let rows = cql.rows(&select, ()).await?;
        if decode::<(String,)>(&rows)?.pop().is_some_and(|(found,)| found == owner) {
            return Ok(());
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(StoreError::Unavailable("another `tally setup` holds the lock".into()))
}

/// The tables must be exactly those that this build knows.
pub(super) async fn check(cql: &Cql) -> Result<(), StoreError> {
    let missing = |why: &str| {
        let why = format!("keyspace '{}' {why}: run `tally setup` of this build", cql.keyspace);
        StoreError::Unsuitable(why)
    };
    let known = known(cql).await.map_err(|error| match error {
        StoreError::Unsuitable(_) => missing("has no tables yet"),
        error => error,
    })?;
    if known.len() < STEPS.len() { Err(missing("lacks tables")) } else { Ok(()) }
}

/// The steps that were applied, checked against ours.
async fn known(cql: &Cql) -> Result<Vec<(i32, i64)>, StoreError> {
    let rows = into_rows(cql.query("SELECT id, checksum FROM {}.migrations").await?)?;
    let mut known = decode::<(i32, i64)>(&rows)?;
    known.sort_unstable();
    for ((id, found), step) in known.iter().zip(STEPS) {
        if *found != checksum(step) {
            return Err(StoreError::Unsuitable(format!(
                "migration {id} of keyspace '{}' is not the one that this build knows",
                cql.keyspace
            )));
        }
    }
    if known.len() > STEPS.len() {
        return Err(StoreError::Unsuitable(format!(
            "keyspace '{}' was set up by a newer build: upgrade this one",
            cql.keyspace
        )));
    }
    Ok(known)
}

/// The same checksum as a record's fingerprint: CRC-32C.
fn checksum(step: &str) -> i64 {
    i64::from(tally_proto::Fingerprint::checksum(&[], step.as_bytes()))
}
