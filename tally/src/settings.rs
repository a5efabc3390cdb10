//! All settings, by section.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tally_aggregator::{AggregatorSettings, FlushSettings};
use tally_ingest::IngestSettings;
use tally_log::embedded::EmbeddedLogSettings;
use tally_log::kafka::KafkaSettings;
use tally_proto::limits::MAX_PARTITIONS;
use tally_reader::ReaderSettings;
use tally_store::cql::CqlSettings;

use crate::roles::Role;

/// What every process is told. Each key is also a variable (`TALLY__KAFKA__BROKERS`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where HTTP is served; the default depends on the role.
    pub listen: Option<String>,
    /// The folder of the embedded log and store.
    pub data_dir: PathBuf,
    /// Partitions of a new log, fixed for life: 8 embedded, 64 on Kafka.
    pub partitions: Option<u32>,
    /// Accept a log or store that can lose its one copy (development).
    pub allow_single_replica: bool,
    /// What is logged: a filter such as `info,tally_log=debug`.
    pub log_filter: String,
    /// Flushing.
    pub flush: FlushSettings,
    /// The embedded log.
    pub log: EmbeddedLogSettings,
    /// The log on Kafka.
    pub kafka: KafkaSettings,
    /// The store on Cassandra or ScyllaDB.
    pub cql: CqlSettings,
    /// Ingest.
    pub ingest: IngestSettings,
    /// Aggregators.
    pub aggregator: AggregatorSettings,
    /// Readers.
    pub reader: ReaderSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: None,
            data_dir: "./tally-data".into(),
            partitions: None,
            allow_single_replica: false,
            log_filter: "info,scylla=warn".into(),
            flush: FlushSettings::default(),
            log: EmbeddedLogSettings::default(),
            kafka: KafkaSettings::default(),
            cql: CqlSettings::default(),
            ingest: IngestSettings::default(),
            aggregator: AggregatorSettings::default(),
            reader: ReaderSettings::default(),
        }
    }
}

impl Settings {
    /// Where a role listens.
    pub fn listen_address(&self, role: Role) -> &str {
        self.listen.as_deref().unwrap_or(match role {
            Role::Serve => "127.0.0.1:8080",
            Role::Ingest => "127.0.0.1:8081",
            Role::Reader => "127.0.0.1:8082",
            Role::Aggregator => "127.0.0.1:8083",
        })
    }

    /// Refuses what cannot be right, before anything is opened.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(partitions) = self.partitions {
            anyhow::ensure!(
                (1..=MAX_PARTITIONS).contains(&partitions),
                "partitions = {partitions} is not between 1 and {MAX_PARTITIONS}"
            );
        }
        anyhow::ensure!(
            (10..=600_000).contains(&self.flush.interval_ms),
            "flush.interval_ms = {} is not between 10 and 600000",
            self.flush.interval_ms
        );
        anyhow::ensure!(
            ["classic", "consumer"].contains(&self.kafka.group_protocol.as_str()),
            "kafka.group_protocol = '{}' is neither classic nor consumer",
            self.kafka.group_protocol
        );
        let max_events = tally_proto::limits::MAX_REQUEST_EVENTS;
        anyhow::ensure!(
            self.ingest.max_pending_events >= max_events,
            "ingest.max_pending_events must be at least {max_events}, the most of one request"
        );
        Ok(())
    }
}
