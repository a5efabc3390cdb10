//! From a Kafka topic to facts, against a bare consumer that parses and counts, and against Kafka
//! Streams. Needs a broker in `TALLY__KAFKA__BROKERS`; it may have one replica.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Message, Offset as Place, TopicPartitionList};
use tally_aggregator::{AggregatorSettings, Context, FlushSettings};
use tally_log::EventLog;
use tally_log::kafka::{KafkaLog, KafkaSettings};
use tally_proto::{CONTENT_TYPE_HEADER, Epoch, Kinds, Partition, RawEvent, route};
use tally_service::clock::SystemClock;
use tally_service::health::Health;
use tally_service::metrics::Metrics;
use tally_service::stopper::Stopper;
use tally_store::{FactStore, MemoryStore};
use tokio::runtime::Runtime;

use crate::{Line, cpu, input};

const PARTITIONS: u32 = 4;
const SUBJECTS: u64 = 100_000;
const JSON_EVENTS: usize = 2_000_000;
const PACKED_EVENTS: usize = 20_000_000;

/// What a reading of the whole topic took.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    cpu: Duration,
}

impl Took {
    fn since(started: Instant, cpu_before: Duration) -> Took {
        Took { wall: started.elapsed(), cpu: cpu(std::process::id()) - cpu_before }
    }

    /// Millions of events a second of one core.
    fn rate(self, events: usize) -> f64 {
        events as f64 / self.cpu.as_secs_f64() / 1e6
    }
}

/// A new topic, and where it is.
pub(crate) fn topic(name: &str) -> KafkaSettings {
    let brokers = std::env::var("TALLY__KAFKA__BROKERS")
        .expect("TALLY__KAFKA__BROKERS names a broker: see docs/benchmarks.md");
    let settings = KafkaSettings {
        brokers: Some(brokers),
        topic: format!("bench.{name}.{}", std::process::id()),
        replication_factor: 1,
        ..<_>::default()
    };
    let create = KafkaLog::create(&settings, PARTITIONS, true);
    Runtime::new().unwrap().block_on(create).unwrap();
    settings
}

/// A topic that is filled.
struct Topic {
    settings: KafkaSettings,
    events: usize,
}

impl Topic {
    fn fill(name: &str, events: usize, records: Vec<(String, tally_log::Record)>) -> Topic {
        let settings = topic(name);
        let producer: ThreadedProducer<_> = ClientConfig::new()
            .set("bootstrap.servers", settings.brokers.as_deref().unwrap())
            .set("linger.ms", "20")
            .set("partitioner", "murmur2_random")
            .create()
            .unwrap();
        for (key, record) in &records {
            let content_type =
                Header { key: CONTENT_TYPE_HEADER, value: Some(record.content_type.header()) };
            let mut next = BaseRecord::to(&settings.topic)
                .key(key)
                .payload(&record.value[..])
                .headers(OwnedHeaders::new().insert(content_type));
            while let Err((KafkaError::MessageProduction(_), full)) = producer.send(next) {
                std::thread::sleep(Duration::from_millis(5));
                next = full;
            }
        }
        producer.flush(Duration::from_secs(60)).unwrap();
        Topic { settings, events }
    }

    fn json(name: &str) -> Topic {
        let subjects = input::subjects(JSON_EVENTS, SUBJECTS);
        let records = input::json_records(&subjects);
        Topic::fill(name, JSON_EVENTS, subjects.into_iter().zip(records).collect())
    }

    /// As ingest makes them: the counters of a record belong to its partition.
    fn packed() -> Topic {
        let mut dealt = vec![Vec::new(); PARTITIONS as usize];
        for subject in input::subjects(PACKED_EVENTS, SUBJECTS) {
            dealt[route("default", &subject, 0, PARTITIONS).0 as usize].push(subject);
        }
        let records = dealt.into_iter().flat_map(|subjects| {
            let key = subjects[0].clone();
            let records = input::packed_records(&subjects, 500);
            records.into_iter().map(move |record| (key.clone(), record))
        });
        Topic::fill("packed", PACKED_EVENTS, records.collect())
    }

    /// Reads it all with a bare consumer.
    fn drain(&self, mut each: impl FnMut(&[u8])) -> Took {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.settings.brokers.as_deref().unwrap())
            .set("group.id", "bench")
            .set("enable.partition.eof", "true")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut all = TopicPartitionList::new();
        for partition in 0..PARTITIONS as i32 {
            all.add_partition_offset(&self.settings.topic, partition, Place::Beginning).unwrap();
        }
        let (started, before) = (Instant::now(), cpu(std::process::id()));
        consumer.assign(&all).unwrap();
        let mut ended = 0;
        while ended < PARTITIONS {
            match consumer.poll(Duration::from_secs(30)).expect("the broker answers") {
                Ok(message) => each(message.payload().unwrap_or_default()),
                Err(KafkaError::PartitionEOF(_)) => ended += 1,
                Err(error) => panic!("{error}"),
            }
        }
        Took::since(started, before)
    }

    /// The real aggregator on the real log, into a store in memory; every total is checked.
    fn aggregate(&self) -> Took {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let log = Arc::new(KafkaLog::open(&self.settings, true).await.unwrap());
            let store = Arc::new(MemoryStore::default());
            let mut ends = Vec::new();
            for partition in (0..PARTITIONS).map(Partition) {
                ends.push(log.bounds(partition).await.unwrap().end);
            }
            let settings =
                AggregatorSettings { assign: Some("0-3".into()), ..AggregatorSettings::default() };
            let stopper = Stopper::new();
            let context = Context {
                log,
                store: store.clone(),
                epoch: Epoch::FIRST,
                kinds: Arc::new(Kinds::built_in()),
                limits: settings.engine_limits(PARTITIONS),
                settings,
                flush: FlushSettings::default(),
                id: "bench".into(),
                clock: SystemClock::shared(),
                health: Health::default(),
                metrics: Metrics::default(),
                stopper: stopper.clone(),
            };
            let (started, before) = (Instant::now(), cpu(std::process::id()));
            let aggregator = tokio::spawn(tally_aggregator::run(context));
            for (partition, end) in (0..PARTITIONS).map(Partition).zip(ends) {
                let is_folded = async || {
                    let checkpoint = store.load_checkpoint(partition).await.unwrap();
                    checkpoint.is_some_and(|checkpoint| checkpoint.as_of.0 >= end.0)
                };
                while !is_folded().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            let took = Took::since(started, before);
            stopper.stop();
            aggregator.await.unwrap().unwrap();
            let mut total = 0;
            for subject in store.list_subjects(None, usize::MAX).await.unwrap() {
                let rows = store.read_subject(&subject).await.unwrap();
                total += rows.iter().map(|row| row.fact.total).sum::<i64>();
            }
            assert_eq!(total, self.events as i64, "every event is counted once");
            took
        })
    }
}

/// The one of the least processor time of three.
fn best(mut run: impl FnMut() -> Took) -> Took {
    (0..3).map(|_| run()).min_by_key(|took| took.cpu).unwrap()
}

pub(crate) fn json() -> Line {
    let topic = Topic::json("json");
    let reached = best(|| topic.aggregate()).rate(topic.events);
    let limit = best(|| {
        let mut counts: HashMap<String, i64, foldhash::fast::FixedState> = HashMap::default();
        topic.drain(|value| {
            let event = RawEvent::parse(std::str::from_utf8(value).unwrap()).unwrap();
            let delta = event.delta.unwrap_or(1);
            match counts.get_mut(&*event.subject.0) {
                Some(count) => *count += delta,
                None => drop(counts.insert(event.subject.0.into_owned(), delta)),
            }
        })
    });
    let limit = limit.rate(topic.events);
    Line {
        name: "Kafka to facts, JSON records",
        reached: format!("{reached:.2} M events/CPU s"),
        limit: format!("{limit:.2} M drain + count"),
        ratio: reached / limit,
        wanted: 0.9,
    }
}

pub(crate) fn packed() -> Line {
    let topic = Topic::packed();
    let reached = best(|| topic.aggregate()).rate(topic.events);
    Line {
        name: "Kafka to facts, packed records",
        reached: format!("{reached:.1} M events/CPU s"),
        limit: "8 M events/s".into(),
        ratio: reached / 8.0,
        wanted: 1.0,
    }
}

/// Kafka Streams, `exactly_once_v2`, one thread, the same topic.
pub(crate) fn streams() -> Line {
    let topic = Topic::json("streams");
    let reached = best(|| topic.aggregate());
    let jars = std::env::var("KAFKA_STREAMS_JARS")
        .expect("KAFKA_STREAMS_JARS names the folder of its jars: see docs/benchmarks.md");
    let output = Command::new("java")
        .args(["-cp", &format!("{jars}/*"), "bench/streams/Count.java"])
        .args([topic.settings.brokers.as_deref().unwrap(), &topic.settings.topic])
        .arg(topic.events.to_string())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let told: Vec<f64> = told.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [counted, wall, cpu] = told[..] else { panic!("it counts and tells") };
    assert_eq!(counted as usize, topic.events, "it reached the end");
    let rate = |seconds: f64| topic.events as f64 / seconds / 1e6;
    Line {
        name: "Kafka to facts, and Kafka Streams",
        reached: format!(
            "{:.2} M/CPU s ({:.2} M/s)",
            reached.rate(topic.events),
            rate(reached.wall.as_secs_f64())
        ),
        limit: format!("{:.3} M/CPU s ({:.3} M/s)", rate(cpu), rate(wall)),
        ratio: reached.rate(topic.events) / rate(cpu),
        wanted: 10.0,
    }
}
