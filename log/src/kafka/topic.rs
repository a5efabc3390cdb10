//! The events topic: what it must be so that its prefix never changes, and its creation.

use std::collections::HashMap;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;
use tally_proto::RetryWindow;

use super::client::ANSWER;
use super::settings::KafkaSettings;
use super::unavailable;
use crate::port::LogError;

/// What the brokers say of a topic.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub(super) cluster: String,
    pub(super) partitions: u32,
    /// The least over the partitions.
    pub(super) replicas: usize,
    pub(super) config: HashMap<String, String>,
}

type Admin = AdminClient<DefaultClientContext>;

/// Asks the brokers for a topic.
pub(super) async fn describe(client: &ClientConfig, name: &str) -> Result<Topic, LogError> {
    let admin: Admin = client.create().map_err(unavailable)?;
    let (admin, cluster, sizes) = blocking(admin, name.to_owned()).await?;
    let resource = ResourceSpecifier::Topic(name);
    let described = admin
        .describe_configs(&[resource], &AdminOptions::new().request_timeout(Some(ANSWER)))
        .await
        .map_err(unavailable)?;
    let mut config = HashMap::new();
    for resource in described {
        for entry in resource.map_err(unavailable)?.entries {
            config.insert(entry.name, entry.value.unwrap_or_default());
        }
    }
    Ok(Topic {
        cluster,
        partitions: u32::try_from(sizes.len()).unwrap_or(u32::MAX),
        replicas: sizes.into_iter().min().unwrap_or(0),
        config,
    })
}

/// The questions that hold a thread: the cluster's id, and the replicas of each partition.
async fn blocking(admin: Admin, name: String) -> Result<(Admin, String, Vec<usize>), LogError> {
    let ask = move || {
        let client = admin.inner();
        let metadata = client.fetch_metadata(Some(&name), ANSWER).map_err(unavailable)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == name);
        let sizes: Vec<usize> = match topic {
            Some(topic) if topic.error().is_none() => {
                topic.partitions().iter().map(|partition| partition.replicas().len()).collect()
            }
            _ => Vec::new(),
        };
        if sizes.is_empty() {
            return Err(LogError::Unsuitable(format!(
                "topic '{name}' does not exist: run `tally setup` once"
            )));
        }
        let cluster = client
            .fetch_cluster_id(ANSWER)
            .ok_or_else(|| unavailable("the brokers do not name their cluster"))?;
        Ok((admin, cluster, sizes))
    };
    tokio::task::spawn_blocking(ask).await.map_err(unavailable)?
}

/// Refuses a topic that could lose or change what it acknowledged, with one line for each reason.
pub(super) fn check(
    topic: &Topic,
    settings: &KafkaSettings,
    allow_single_replica: bool,
) -> Result<(), LogError> {
    let name = &settings.topic;
    let config = |key: &str| topic.config.get(key).map_or("", String::as_str);
    let refuse = |why: String| Err(LogError::Unsuitable(format!("topic '{name}': {why}")));
    let wanted = usize::from(settings.replication_factor);
    if topic.replicas < wanted && !allow_single_replica {
        return refuse(format!(
            "a partition has {} replicas, {wanted} are needed to lose none (or say that one copy \
             is enough: allow_single_replica = true)",
            topic.replicas
        ));
    }
    let in_sync: u32 = config("min.insync.replicas").parse().unwrap_or(0);
    if in_sync < 2 && !allow_single_replica {
        return refuse(format!(
            "min.insync.replicas = {in_sync}, so an acknowledged record may have one copy only: \
             set it to 2 (or say that one copy is enough: allow_single_replica = true)"
        ));
    }
    for (key, needed, why) in [
        (
            "unclean.leader.election.enable",
            "false",
            "a replica that lacks records could become leader, and they would be lost",
        ),
        ("cleanup.policy", "delete", "compaction would take records that are still to be counted"),
        (
            "message.timestamp.type",
            "LogAppendTime",
            "times named by producers may go back, and answers would be false as of them",
        ),
    ] {
        if config(key) != needed {
            return refuse(format!("{key} must be {needed}, it is '{}': {why}", config(key)));
        }
    }
    check_retention(config).or_else(refuse)
}

/// A fold that resumes reads the ids of the retry window again: they must still be there.
fn check_retention<'c>(config: impl Fn(&str) -> &'c str) -> Result<(), String> {
    const LEAST_MS: i64 = RetryWindow::BUILT_IN.least_retention_ms();
    let number = |key: &str| config(key).parse::<i64>().unwrap_or(-1); // -1: no limit
    let (age_ms, size) = (number("retention.ms"), number("retention.bytes"));
    if (0..LEAST_MS).contains(&age_ms) {
        return Err(format!(
            "retention.ms must be {LEAST_MS} at least, it is {age_ms}: the ids by which repeats \
             are known would be lost with their records"
        ));
    }
    if size >= 0 {
        return Err(format!(
            "retention.bytes must be -1, it is {size}: records would go before they are \
             {LEAST_MS} ms old, and with them the ids by which repeats are known; limit retention.ms"
        ));
    }
    Ok(())
}

/// Creates the topic as [`check`] wants it; `false` if it is there already.
pub(super) async fn create(
    client: &ClientConfig,
    settings: &KafkaSettings,
    partitions: u32,
    allow_single_replica: bool,
) -> Result<bool, LogError> {
    let admin: Admin = client.create().map_err(unavailable)?;
    let replicas = i32::from(settings.replication_factor);
    let in_sync = if replicas > 1 { "2" } else { "1" };
    let retention_ms = (u64::from(settings.retention_hours) * 3_600_000).to_string();
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    let topic = NewTopic::new(&settings.topic, partitions, TopicReplication::Fixed(replicas))
        .set("min.insync.replicas", in_sync)
        .set("unclean.leader.election.enable", "false")
        .set("cleanup.policy", "delete")
        .set("message.timestamp.type", "LogAppendTime")
        .set("retention.ms", &retention_ms);
    let options = AdminOptions::new().request_timeout(Some(ANSWER)).operation_timeout(Some(ANSWER));
    let created = admin.create_topics(&[topic], &options).await.map_err(unavailable)?;
    let created = match created.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => false,
        Some(Err((_, RDKafkaErrorCode::InvalidReplicationFactor))) => {
            return Err(LogError::Unsuitable(format!(
                "there are fewer than {replicas} brokers: start more, or set \
                 kafka.replication_factor and allow_single_replica for development"
            )));
        }
        Some(Err((_, code))) => return Err(unavailable(code)),
        _ => true,
    };
    wait_until_described(client, settings, allow_single_replica).await?;
    Ok(created)
}

/// A topic is known to all brokers a moment after it was created.
async fn wait_until_described(
    client: &ClientConfig,
    settings: &KafkaSettings,
    allow_single_replica: bool,
) -> Result<(), LogError> {
    let mut last = Ok(());
    for _ in 0..50 {
        match describe(client, &settings.topic).await {
            Ok(topic) => return check(&topic, settings, allow_single_replica),
            Err(error) => last = Err(error),
        }
        tally_service::clock::sleep(std::time::Duration::from_millis(100)).await;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(replicas: usize, changes: &[(&str, &str)]) -> Topic {
        let mut config: HashMap<String, String> = [
            ("min.insync.replicas", "2"),
            ("unclean.leader.election.enable", "false"),
            ("cleanup.policy", "delete"),
            ("message.timestamp.type", "LogAppendTime"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        config.extend(changes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Topic { cluster: "c".into(), partitions: 8, replicas, config }
    }

    #[test]
    fn a_topic_that_may_lose_records_is_refused_with_the_reason() {
        let settings = KafkaSettings::default();
        assert_eq!(check(&topic(3, &[]), &settings, false), Ok(()));
        for (replicas, changes, word) in [
            (1, &[][..], "replicas"),
            (3, &[("min.insync.replicas", "1")][..], "min.insync.replicas"),
            (3, &[("unclean.leader.election.enable", "true")][..], "unclean"),
            (3, &[("cleanup.policy", "compact")][..], "cleanup.policy"),
            (3, &[("message.timestamp.type", "CreateTime")][..], "LogAppendTime"),
            (3, &[("retention.ms", "3600000")][..], "retention.ms"),
            (3, &[("retention.bytes", "1000000")][..], "retention.bytes"),
        ] {
            let error = check(&topic(replicas, changes), &settings, false).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let for_ever = topic(3, &[("retention.ms", "-1"), ("retention.bytes", "-1")]);
        assert_eq!(check(&for_ever, &settings, false), Ok(()));
        assert_eq!(check(&topic(1, &[("min.insync.replicas", "1")]), &settings, true), Ok(()));
        let compacted = topic(1, &[("cleanup.policy", "compact")]);
        assert!(check(&compacted, &settings, true).is_err(), "that is not a matter of copies");
    }
}
