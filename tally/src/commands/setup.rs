//! `tally setup`: topic, keyspace, tables and layout; again, it changes nothing and says so.

use anyhow::ensure;
use tally_log::EventLog;
use tally_log::kafka::KafkaLog;
use tally_store::FactStore;
use tally_store::cql::CqlStore;

use crate::settings::Settings;
use crate::wiring::{check_layout, layout_of};

/// Partitions of a new topic for which nobody named a number: generous, since they never grow.
const KAFKA_PARTITIONS: u32 = 64;

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let (kafka, cql) = (&settings.kafka, &settings.cql);
    ensure!(
        kafka.brokers.is_some() || cql.contact_points.is_some(),
        "nothing to set up: the embedded log and store need no setup. Name kafka.brokers \
         (TALLY__KAFKA__BROKERS) and cql.contact_points (TALLY__CQL__CONTACT_POINTS)"
    );
    if kafka.brokers.is_some() {
        let partitions = settings.partitions.unwrap_or(KAFKA_PARTITIONS);
        let created = KafkaLog::create(kafka, partitions, settings.allow_single_replica).await?;
        say("topic", &kafka.topic, created);
    }
    if cql.contact_points.is_some() {
        let migrations = CqlStore::create(cql, settings.allow_single_replica).await?;
        say("keyspace", &cql.keyspace, migrations > 0);
    }
    if kafka.brokers.is_some() && cql.contact_points.is_some() {
        let log = KafkaLog::open(kafka, settings.allow_single_replica).await?;
        let store = CqlStore::open(cql, settings.allow_single_replica).await?;
        let had_layout = store.layout().await?.is_some();
        let layout = store.create_layout(&layout_of(&log)).await?;
        check_layout(&layout, &log, settings)?;
        say("layout", &format!("of {} partitions", log.partitions()), !had_layout);
    }
    Ok(())
}

fn say(what: &str, name: &str, created: bool) {
    println!("{what} {name}: {}", if created { "created" } else { "already there, unchanged" });
}
