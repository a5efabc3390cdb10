//! Appending: an idempotent producer, acks from all in-sync replicas, an explicit partition.

use std::sync::Arc;

use parking_lot::RwLock;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Code;
use tally_proto::{CONTENT_TYPE_HEADER, Offset, Partition};
use tokio::sync::oneshot;

use super::settings::KafkaSettings;
use super::{number, unavailable};
use crate::port::{AppendError, LogError, NewRecord};

type Reply = oneshot::Sender<Result<Offset, KafkaError>>;
type Native = ThreadedProducer<Deliveries>;

/// Hands each delivery to who waits for it.
struct Deliveries;

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        super::client::note(&error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Deliveries {
    type DeliveryOpaque = Box<Reply>;

    fn delivery(&self, delivered: &DeliveryResult<'_>, reply: Box<Reply>) {
        let result = match delivered {
            Ok(message) => Ok(Offset(u64::try_from(message.offset()).unwrap_or(0))),
            Err((error, _)) => Err(error.clone()),
        };
        reply.send(result).ok(); // who does not wait any more does not hear of it
    }
}

/// A producer that is built anew when an error made it useless.
pub(super) struct Producer {
    config: ClientConfig,
    topic: String,
    native: RwLock<Arc<Native>>,
}

impl Producer {
    pub(super) fn new(client: &ClientConfig, settings: &KafkaSettings) -> Result<Self, LogError> {
        let mut config = client.clone();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("compression.type", "lz4")
            .set("message.max.bytes", "1000000")
            .set("queue.buffering.max.messages", "20000")
            .set("queue.buffering.max.kbytes", "262144")
            .set("delivery.timeout.ms", settings.delivery_timeout_ms.to_string());
        let native = RwLock::new(Arc::new(build(&config).map_err(unavailable)?));
        Ok(Producer { config, topic: settings.topic.clone(), native })
    }

    pub(super) async fn append(
        &self,
        partition: Partition,
        record: NewRecord,
    ) -> Result<Offset, AppendError> {
        let native = self.native.read().clone();
        let (reply, delivery) = oneshot::channel();
        let content_type =
            Header { key: CONTENT_TYPE_HEADER, value: Some(record.content_type.header()) };
        let mut message = BaseRecord::with_opaque_to(&self.topic, Box::new(reply))
            .partition(number(partition))
            .payload(record.value.as_ref())
            .headers(OwnedHeaders::new().insert(content_type));
        if !record.key.is_empty() {
            message = message.key(record.key.as_ref());
        }
        if let Err((error, _)) = native.send(message) {
            self.replace_if_fatal(&native, &error);
            return Err(AppendError::Refused(error.to_string()));
        }
        match delivery.await {
            Ok(Ok(offset)) => Ok(offset),
            Ok(Err(error)) => {
                self.replace_if_fatal(&native, &error);
                Err(refusal(&error))
            }
            Err(_) => Err(AppendError::InDoubt("the producer was closed".into())),
        }
    }

    /// A fatal error makes a producer useless; what it had pending is in doubt, and a new one goes
    /// on. Events carry no producer state, so nothing is counted twice by that alone.
    fn replace_if_fatal(&self, failed: &Arc<Native>, error: &KafkaError) {
        if error.rdkafka_error_code() != Some(Code::Fatal) {
            return;
        }
        let mut native = self.native.write();
        if Arc::ptr_eq(&native, failed) {
            tracing::error!(%error, "the producer cannot go on and is built anew");
            match build(&self.config) {
                Ok(built) => *native = Arc::new(built),
                Err(error) => tracing::error!(%error, "the producer cannot be built"),
            }
        }
    }
}

fn build(config: &ClientConfig) -> Result<Native, KafkaError> {
    config.create_with_context(Deliveries)
}

/// What is surely not in the log, and what may be.
fn refusal(error: &KafkaError) -> AppendError {
    match error.rdkafka_error_code() {
        Some(
            Code::MessageSizeTooLarge
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::UnknownTopic
            | Code::TopicAuthorizationFailed,
        ) => AppendError::Refused(error.to_string()),
        _ => AppendError::InDoubt(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Raw};
    use tally_proto::ContentType;

    use super::*;

    fn producer(cluster: &MockCluster<'_, impl ClientContext>) -> Producer {
        let settings = KafkaSettings {
            brokers: Some(cluster.bootstrap_servers()),
            delivery_timeout_ms: 2_000,
            ..KafkaSettings::default()
        };
        cluster.create_topic(&settings.topic, 4, 1).unwrap();
        Producer::new(&super::super::client::config(&settings).unwrap(), &settings).unwrap()
    }

    fn record() -> NewRecord {
        let value = bytes::Bytes::from_static(b"{}");
        NewRecord { key: bytes::Bytes::new(), value, content_type: ContentType::Json }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_error_that_passes_is_retried_and_nobody_hears_of_it() {
        let cluster = MockCluster::new(1).unwrap();
        let producer = producer(&cluster);
        let errors = [Raw::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 3];
        cluster.request_errors(RDKafkaApiKey::Produce, &errors);
        assert_eq!(producer.append(Partition(2), record()).await, Ok(Offset(0)));
        assert_eq!(producer.append(Partition(2), record()).await, Ok(Offset(1)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_record_without_an_answer_is_in_doubt_and_the_next_one_goes_on() {
        let cluster = MockCluster::new(1).unwrap();
        let producer = producer(&cluster);
        assert_eq!(producer.append(Partition(0), record()).await, Ok(Offset(0)));
        cluster.broker_down(1).unwrap();
        let lost = producer.append(Partition(0), record()).await;
        assert!(matches!(lost, Err(AppendError::InDoubt(_))), "{lost:?}");
        cluster.broker_up(1).unwrap();
        let mut appended = producer.append(Partition(0), record()).await;
        if appended.is_err() {
            appended = producer.append(Partition(0), record()).await; // it needs time to reconnect
        }
        assert!(appended.is_ok(), "{appended:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_record_that_is_too_large_was_surely_not_taken() {
        let cluster = MockCluster::new(1).unwrap();
        let producer = producer(&cluster);
        let large = NewRecord { value: vec![0; 2 << 20].into(), ..record() };
        let refused = producer.append(Partition(0), large).await;
        assert!(matches!(refused, Err(AppendError::Refused(_))), "{refused:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_producer_that_failed_for_good_is_built_anew() {
        let cluster = MockCluster::new(1).unwrap();
        let producer = producer(&cluster);
        assert_eq!(producer.append(Partition(0), record()).await, Ok(Offset(0)));
        let before = producer.native.read().clone();
        producer.replace_if_fatal(&before, &KafkaError::MessageProduction(Code::QueueFull));
        assert!(Arc::ptr_eq(&before, &producer.native.read()), "that one passes");
        let fatal = KafkaError::MessageProduction(Code::Fatal);
        producer.replace_if_fatal(&before, &fatal);
        let after = producer.native.read().clone();
        assert!(!Arc::ptr_eq(&before, &after));
        producer.replace_if_fatal(&before, &fatal);
        assert!(Arc::ptr_eq(&after, &producer.native.read()), "once for each failure");
        assert_eq!(producer.append(Partition(0), record()).await, Ok(Offset(1)));
    }
}
