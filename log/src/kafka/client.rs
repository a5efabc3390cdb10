//! What every client of the brokers is told.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::{Message, Timestamp};
use tally_proto::{CONTENT_TYPE_HEADER, ContentType, Offset};

use super::settings::KafkaSettings;
use crate::port::{LogError, Record};

/// How long one question to the brokers may take.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// The settings of all clients. Never logged: they may hold secrets.
pub(super) fn config(settings: &KafkaSettings) -> Result<ClientConfig, LogError> {
    let Some(brokers) = &settings.brokers else {
        return Err(LogError::Unsuitable("kafka.brokers is not set".into()));
    };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("client.id", "tally")
        .set("allow.auto.create.topics", "false")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("socket.keepalive.enable", "true")
        .set("topic.metadata.refresh.interval.ms", "30000");
    Ok(config)
}

/// Errors of the client as a whole come out of polls and appends as well, where they are handled;
/// and the end of a partition is no error.
pub(super) fn note(error: &KafkaError, reason: &str) {
    if !matches!(error, KafkaError::PartitionEOF(_)) {
        tracing::debug!(%error, reason, "the Kafka client has trouble");
    }
}

/// A context that only takes notes.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        note(&error, reason);
    }
}

impl ConsumerContext for Quiet {}

/// What every consumer is told beside.
pub(super) fn consumer_config(config: &ClientConfig) -> ClientConfig {
    let mut config = config.clone();
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true");
    config
}

/// A record of our own from one of the client's, whose bytes are copied.
pub(super) fn record(message: &BorrowedMessage<'_>) -> Record {
    let header = message.headers().and_then(|headers| {
        headers.iter().find(|header| header.key == CONTENT_TYPE_HEADER).and_then(|h| h.value)
    });
    Record {
        offset: Offset(u64::try_from(message.offset()).unwrap_or(0)),
        append_time_ms: match message.timestamp() {
            Timestamp::LogAppendTime(ms) | Timestamp::CreateTime(ms) => ms,
            Timestamp::NotAvailable => 0,
        },
        key: bytes::Bytes::copy_from_slice(message.key().unwrap_or_default()),
        value: bytes::Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        content_type: ContentType::of(header),
    }
}
