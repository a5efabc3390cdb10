//! What a cluster must be so that an acknowledged fact stays, and no later one is hidden.

use std::collections::HashMap;

use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};

use super::session::{Cql, decode, into_rows, unavailable};
use super::settings::CqlSettings;
use crate::port::StoreError;

fn unsuitable<T>(why: String) -> Result<T, StoreError> {
    Err(StoreError::Unsuitable(why))
}

/// The keyspace must exist and keep enough copies.
pub(super) async fn keyspace(
    cql: &Cql,
    settings: &CqlSettings,
    allow_single_replica: bool,
) -> Result<(), StoreError> {
    let select = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let select = cql.session.prepare(select).await.map_err(unavailable)?;
    let rows = cql.rows(&select, (&settings.keyspace,)).await?;
    let name = &settings.keyspace;
    let Some((replication,)) = decode::<(HashMap<String, String>,)>(&rows)?.pop() else {
        return unsuitable(format!("keyspace '{name}' does not exist: run `tally setup` once"));
    };
    let copies = copies(&replication);
    let wanted = u64::from(settings.replication_factor);
    if copies < wanted && !allow_single_replica {
        return unsuitable(format!(
            "keyspace '{name}' keeps {copies} copies, {wanted} are needed to lose none (or say that \
             one copy is enough: allow_single_replica = true)"
        ));
    }
    Ok(())
}

/// Copies over all data centres: reads and writes ask a quorum of these.
fn copies(replication: &HashMap<String, String>) -> u64 {
    let numbers = replication.iter().filter(|(key, _)| *key != "class");
    numbers.filter_map(|(_, value)| value.split('/').next()?.parse::<u64>().ok()).sum()
}

/// No table may let cells expire, or write them anew under other timestamps.
pub(super) async fn tables(cql: &Cql, settings: &CqlSettings) -> Result<(), StoreError> {
    let select = "SELECT table_name, default_time_to_live FROM system_schema.tables \
                  WHERE keyspace_name = ?";
    let select = cql.session.prepare(select).await.map_err(unavailable)?;
    let rows = cql.rows(&select, (&settings.keyspace,)).await?;
    for (table, time_to_live) in decode::<(String, Option<i32>)>(&rows)? {
        if ["facts", "ledger", "checkpoints"].contains(&table.as_str())
            && time_to_live.unwrap_or(0) != 0
        {
            return unsuitable(format!(
                "table {}.{table} has a default_time_to_live, so facts would vanish: set it to 0",
                settings.keyspace
            ));
        }
    }
    Ok(())
}

/// Every node must sync its commit log before it acknowledges: else a power cut takes facts that
/// a checkpoint has passed.
pub(super) async fn commit_log(cql: &Cql, allow_single_replica: bool) -> Result<(), StoreError> {
    if allow_single_replica {
        return Ok(());
    }
    for node in cql.session.get_cluster_state().get_nodes_info() {
        let node = NodeIdentifier::Node(node.clone());
        match commit_log_sync(cql, node.clone()).await? {
            Some(sync) if sync == "periodic" => {
                return unsuitable(format!(
                    "node {} acknowledges before it has synced (commitlog_sync: periodic), so a \
                     power cut loses facts: set it to batch or group (or say that this loss is \
                     acceptable: allow_single_replica = true)",
                    address(&node)
                ));
            }
            Some(_) => {}
            None => {
                return unsuitable(format!(
                    "node {} does not tell its commitlog_sync, which must be batch or group (or \
                     say that loss is acceptable: allow_single_replica = true)",
                    address(&node)
                ));
            }
        }
    }
    Ok(())
}

fn address(node: &NodeIdentifier) -> String {
    match node {
        NodeIdentifier::Node(node) => node.address.to_string(),
        other => format!("{other:?}"),
    }
}

/// What one node says of its commit log: Cassandra in a virtual table, ScyllaDB in another.
async fn commit_log_sync(cql: &Cql, node: NodeIdentifier) -> Result<Option<String>, StoreError> {
    for text in [
        "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'",
        "SELECT value FROM system.config WHERE name = 'commitlog_sync'",
    ] {
        let mut statement = scylla::statement::unprepared::Statement::new(text);
        statement.set_consistency(scylla::statement::Consistency::One);
        let target = SingleTargetLoadBalancingPolicy::new(node.clone(), None);
        statement.set_load_balancing_policy(Some(target));
        let Ok(result) = cql.session.query_unpaged(statement, ()).await else { continue };
        if let Some((value,)) = decode::<(Option<String>,)>(&into_rows(result)?)?.pop() {
            return Ok(value.map(|value| value.trim_matches('"').to_lowercase()));
        }
    }
    Ok(None)
}

/// A write under a low timestamp must be taken, and read back with it. The names of the probe's
/// row are none that an event could have.
pub(super) async fn timestamps(cql: &Cql) -> Result<(), StoreError> {
    const KEY: &str = "namespace = '~probe' AND subject = '~probe' AND kind = '~probe' \
                       AND lane = 0 AND partition = 0";
    let write = format!("UPDATE {{}}.facts USING TIMESTAMP 1 SET fact = 0x00 WHERE {KEY}");
    if let Err(StoreError::Unsuitable(why)) = cql.query(&write).await {
        return unsuitable(format!(
            "the store refuses a write with a timestamp of its own ({why}): allow it \
             (user_timestamps_enabled, minimum_timestamp guardrails)"
        ));
    }
    let read = cql.query(&format!("SELECT WRITETIME(fact) FROM {{}}.facts WHERE {KEY}")).await?;
    match decode::<(Option<i64>,)>(&into_rows(read)?)?.pop() {
        Some((Some(1),)) => Ok(()),
        found => unsuitable(format!(
            "a cell written with timestamp 1 reads back with {found:?}: the store does not keep \
             the timestamps that it is given"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_over_all_data_centres() {
        let replication = |pairs: &[(&str, &str)]| {
            copies(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        assert_eq!(replication(&[("class", "SimpleStrategy"), ("replication_factor", "3")]), 3);
        assert_eq!(replication(&[("class", "Net"), ("dc1", "3"), ("dc2", "2")]), 5);
        assert_eq!(replication(&[("class", "LocalStrategy")]), 0);
    }
}
