//! `tally get`, `tally add`, `tally like`, `tally create` and `tally reset`.

use reqwest::Method;
use serde_json::json;
use tally_proto::api::{Accepted, CounterAnswer, Total};

use crate::cli::{AddArgs, CreateArgs, GetArgs, LikeArgs, Output};
use crate::client::Client;
use crate::output;

pub(crate) async fn get(client: &Client, output: Output, args: &GetArgs) -> anyhow::Result<()> {
    let path = format!("/v1/counters/{}/{}", args.kind, args.subject);
    let request = client.request(Method::GET, &path).query(&namespace(args.namespace.as_deref()));
    let answer: CounterAnswer = client.json(request).await?;
    output::print(output, &answer, |answer| {
        let value = &answer.value;
        let total = match &value.total {
            Total::Text(total) => total.clone(),
            Total::Number(total) => total.to_string(),
        };
        let as_of = value.as_of.as_deref().unwrap_or("not known yet");
        let age = value.staleness_ms.map_or_else(String::new, |ms| format!(", {ms} ms ago"));
        format!("{total}  ({}, as of {as_of}{age})", value.display)
    })
}

pub(crate) async fn add(client: &Client, output: Output, args: &AddArgs) -> anyhow::Result<()> {
    let counter = (&*args.kind, &*args.subject, args.namespace.as_deref());
    let mut event = json!({ "delta": args.delta });
    if let Some(id) = &args.id {
        event["id"] = id.as_str().into();
    }
    write(client, output, counter, event).await
}

pub(crate) async fn create(
    client: &Client,
    output: Output,
    args: &CreateArgs,
) -> anyhow::Result<()> {
    let mut wish = json!({});
    if let Some(shards) = args.shards {
        wish["shards"] = shards.into();
    }
    if let Some(followers) = args.followers {
        wish["followers"] = followers.into();
    }
    if let Some(visibility) = &args.visibility {
        wish["visibility"] = visibility.as_str().into();
    }
    if args.trending {
        wish["trending"] = true.into();
    }
    let path = format!("/v1/counters/{}/{}", args.kind, args.subject);
    let request = client.request(Method::PUT, &path).query(&namespace(args.namespace.as_deref()));
    let answer: serde_json::Value = client.json(request.json(&wish)).await?;
    output::print(output, &answer, |answer| format!("{} shards at least", answer["shards"]))
}

pub(crate) async fn reset(client: &Client, output: Output, args: &GetArgs) -> anyhow::Result<()> {
    let path = format!("/v1/counters/{}/{}:reset", args.kind, args.subject);
    let request = client.request(Method::POST, &path).query(&namespace(args.namespace.as_deref()));
    let answer: Accepted = client.json(request).await?;
    output::print(output, &answer, |_| "it begins anew: every partition has it".to_owned())
}

pub(crate) async fn like(client: &Client, output: Output, args: &LikeArgs) -> anyhow::Result<()> {
    let counter = (&*args.kind, &*args.subject, args.namespace.as_deref());
    let op = if args.undo { "unset" } else { "set" };
    write(client, output, counter, json!({ "op": op, "actor": args.actor })).await
}

async fn write(
    client: &Client,
    output: Output,
    (kind, subject, of): (&str, &str, Option<&str>),
    event: serde_json::Value,
) -> anyhow::Result<()> {
    let path = format!("/v1/counters/{kind}/{subject}:add");
    let request = client.request(Method::POST, &path).query(&namespace(of)).json(&event);
    let answer: Accepted = client.json(request).await?;
    output::print(output, &answer, |_| "counted: it is in the log, durable".to_owned())
}

fn namespace(namespace: Option<&str>) -> Vec<(&'static str, &str)> {
    namespace.map(|namespace| ("namespace", namespace)).into_iter().collect()
}
