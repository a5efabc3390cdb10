//! The log on Kafka. The only place that names rdkafka.
//!
//! Invariants: a record is acknowledged by all in-sync replicas before its append returns; a topic
//! that could lose or reorder what it acknowledged is refused; where a fold resumes is never read
//! from the group.

mod client;
mod consumer;
mod lookup;
mod producer;
mod settings;
mod topic;

use std::sync::Arc;

use async_trait::async_trait;
use rdkafka::ClientConfig;
use tally_proto::{Offset, Partition};

use crate::port::{
    AppendError, Bounds, Consume, EventLog, Found, LogConsumer, LogError, NewRecord,
};

pub use settings::KafkaSettings;

use consumer::KafkaConsumer;
use lookup::Lookup;
use producer::Producer;

/// A log on Kafka.
pub struct KafkaLog {
    settings: KafkaSettings,
    client: ClientConfig,
    cluster: String,
    partitions: u32,
    producer: Producer,
    lookup: Arc<Lookup>,
}

impl KafkaLog {
    /// Connects to the brokers and checks that the topic is one that keeps what it acknowledges;
    /// `allow_single_replica` accepts one that can lose its only copy.
    pub async fn open(
        settings: &KafkaSettings,
        allow_single_replica: bool,
    ) -> Result<Self, LogError> {
        let client = client::config(settings)?;
        let topic = topic::describe(&client, &settings.topic).await?;
        topic::check(&topic, settings, allow_single_replica)?;
        let lookup = Lookup::start(&client, &settings.topic)?;
        Ok(KafkaLog {
            producer: Producer::new(&client, settings)?,
            settings: settings.clone(),
            cluster: topic.cluster,
            partitions: topic.partitions,
            lookup: Arc::new(lookup),
            client,
        })
    }

    /// Creates the events topic; `false` if it is there already.
    pub async fn create(
        settings: &KafkaSettings,
        partitions: u32,
        allow_single_replica: bool,
    ) -> Result<bool, LogError> {
        let client = client::config(settings)?;
        topic::create(&client, settings, partitions, allow_single_replica).await
    }
}

#[async_trait]
impl EventLog for KafkaLog {
    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn topic(&self) -> &str {
        &self.settings.topic
    }

    fn partitions(&self) -> u32 {
        self.partitions
    }

    async fn append(&self, partition: Partition, record: NewRecord) -> Result<Offset, AppendError> {
        self.producer.append(partition, record).await
    }

    async fn read_at(&self, partition: Partition, offset: Offset) -> Result<Found, LogError> {
        self.lookup.read_at(partition, offset).await
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, LogError> {
        self.lookup.bounds(partition).await
    }

    async fn first_from(
        &self,
        partition: Partition,
        from: Offset,
    ) -> Result<Option<Offset>, LogError> {
        self.lookup.first_from(partition, from).await
    }

    async fn verify(&self) -> Result<(), LogError> {
        let cluster = self.lookup.cluster().await?;
        if cluster == self.cluster {
            return Ok(());
        }
        Err(LogError::Damaged(format!(
            "the brokers belong to cluster '{cluster}' now, it was '{}'",
            self.cluster
        )))
    }

    fn consumer(&self, consume: Consume) -> Result<Box<dyn LogConsumer>, LogError> {
        Ok(Box::new(KafkaConsumer::new(&self.client, &self.settings, consume)?))
    }
}

/// A partition as Kafka numbers it; there are at most 1,024.
fn number(partition: Partition) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

/// An offset as Kafka numbers it.
fn place(offset: Offset) -> rdkafka::Offset {
    rdkafka::Offset::Offset(i64::try_from(offset.0).unwrap_or(i64::MAX))
}

fn unavailable(error: impl std::fmt::Display) -> LogError {
    LogError::Unavailable(error.to_string())
}
