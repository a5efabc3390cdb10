//! `tally route`: where an event belongs, for producers of their own.

use anyhow::Context;
use serde_json::json;
use tally_proto::{
    CounterId, DEFAULT_NAMESPACE, Kinds, check_name, partition_of, route_key, slot_of,
};

use crate::cli::{Output, RouteArgs};
use crate::output;
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, output: Output, args: &RouteArgs) -> anyhow::Result<()> {
    let namespace = args.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let counter = CounterId::new(namespace, &args.kind, &args.subject)
        .map_err(|error| anyhow::anyhow!("namespace, kind or subject {error}"))?;
    let default = if settings.kafka.brokers.is_some() { 64 } else { 8 };
    let partitions = settings.partitions.unwrap_or(default);
    let slot = match &args.actor {
        None => args.slot,
        Some(actor) => slot(&args.kind, actor)?,
    };
    let key = route_key(namespace, &counter.subject.subject, slot);
    let partition = partition_of(key.as_bytes(), partitions);
    let result = json!({ "key": key, "partition": partition, "partitions": partitions });
    output::print(output, &result, |_| {
        format!("key {key}  partition {partition} of {partitions} (murmur2)")
    })
}

/// The slot of an actor's events, or of the events with an id.
fn slot(kind: &str, name: &str) -> anyhow::Result<u32> {
    check_name(name).map_err(|error| anyhow::anyhow!("the actor or id {error}"))?;
    let kinds = Kinds::built_in();
    let kind = kinds.get(kind).with_context(|| format!("kind '{kind}' is not declared"))?;
    Ok(slot_of(name, kind.spread))
}
