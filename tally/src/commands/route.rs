//! `tally route`: where an event belongs, for producers of their own.

use serde_json::json;
use tally_proto::{CounterId, DEFAULT_NAMESPACE, partition_of, route_key};

use crate::cli::{Output, RouteArgs};
use crate::output;
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, output: Output, args: &RouteArgs) -> anyhow::Result<()> {
    let namespace = args.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let counter = CounterId::new(namespace, &args.kind, &args.subject)
        .map_err(|error| anyhow::anyhow!("namespace, kind or subject {error}"))?;
    let default = if settings.kafka.brokers.is_some() { 64 } else { 8 };
    let partitions = settings.partitions.unwrap_or(default);
    let key = route_key(namespace, &counter.subject.subject, args.slot);
    let partition = partition_of(key.as_bytes(), partitions);
    let result = json!({ "key": key, "partition": partition, "partitions": partitions });
    output::print(output, &result, |_| {
        format!("key {key}  partition {partition} of {partitions} (murmur2)")
    })
}
