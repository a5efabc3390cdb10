//! `POST /v1/counters/{kind}/{subject}:{verb}`: add and reset; `DELETE` of a counter.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use tally_proto::{CounterId, DEFAULT_NAMESPACE, RawEvent};
use tally_service::http::Problem;

use super::answer::{self, Ack};
use super::{body, create};
use crate::ingest::Ingest;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VerbQuery {
    namespace: Option<String>,
    #[serde(default)]
    ack: Ack,
    #[serde(rename = "return")]
    return_what: Option<String>,
}

/// What `:add` takes: an event without what the path says.
const ADD_FIELDS: [&str; 6] = ["op", "delta", "actor", "id", "time", "region"];

/// Carries out the verb that follows the last colon.
pub(super) async fn post_verb(
    State(ingest): State<Arc<Ingest>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<VerbQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Path((kind, rest)) = path?;
    let Query(query) = query?;
    let (subject, verb) = rest.rsplit_once(':').unwrap_or((&rest, ""));
    match verb {
        "add" => add(&ingest, (&kind, subject), query, &headers, body).await,
        "reset" => reset(&ingest, &counter(&ingest, (&kind, subject), &query.namespace)?).await,
        _ => {
            let detail = "a write ends in a verb: /v1/counters/view/video:123:add or …:reset";
            Err(Problem::new(StatusCode::NOT_FOUND, "unknown_verb", detail))
        }
    }
}

async fn add(
    ingest: &Ingest,
    (kind, subject): (&str, &str),
    query: VerbQuery,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    if query.return_what.is_some() {
        let detail = "'return' is not supported by this version yet";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "not_supported", detail));
    }
    let limit = Duration::from_millis(ingest.settings.body_timeout_ms);
    let body = body::read(headers, body, limit).await?;
    let malformed = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    let json = match std::str::from_utf8(&body) {
        Ok(text) if text.trim_ascii().is_empty() => "{}",
        Ok(text) => text,
        Err(_) => return Err(malformed("the body is not UTF-8".into())),
    };
    let event = event_json(kind, subject, query.namespace.as_deref(), json).map_err(malformed)?;
    answer::write(ingest, &[RawEvent::parse(&event)], query.ack).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CounterQuery {
    pub(super) namespace: Option<String>,
}

/// A counter is gone, and may be used again at once.
pub(super) async fn delete_counter(
    State(ingest): State<Arc<Ingest>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<CounterQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path((kind, subject)) = path?;
    let Query(query) = query?;
    let counter = counter(&ingest, (&kind, &subject), &query.namespace)?;
    let answer = reset(&ingest, &counter).await?;
    ingest.store.write_created(&counter, None).await.map_err(create::store_away)?;
    Ok(answer)
}

/// Begins a counter anew: answered when every partition has it in its log.
async fn reset(ingest: &Ingest, counter: &CounterId) -> Result<Response, Problem> {
    let token = ingest.reset(counter).await?;
    Ok(answer::respond(StatusCode::OK, 1, Vec::new(), Some(token)))
}

/// The counter that a path names.
pub(super) fn counter(
    ingest: &Ingest,
    (kind, subject): (&str, &str),
    namespace: &Option<String>,
) -> Result<CounterId, Problem> {
    let namespace = namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let counter = CounterId::new(namespace, kind, subject).map_err(|error| {
        let detail = format!("namespace, kind or subject {error}");
        Problem::new(StatusCode::BAD_REQUEST, "bad_name", detail)
    })?;
    if ingest.kinds.get(kind).is_none() {
        let detail = format!("kind '{kind}' is not declared");
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_kind", detail));
    }
    Ok(counter)
}

/// The event that a body stands for, once the path has named its counter.
fn event_json(
    kind: &str,
    subject: &str,
    namespace: Option<&str>,
    body: &str,
) -> Result<String, String> {
    let mut event: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(body).map_err(|error| error.to_string())?;
    if let Some(field) = event.keys().find(|field| !ADD_FIELDS.contains(&field.as_str())) {
        return Err(format!("unknown field '{field}', expected one of {}", ADD_FIELDS.join(", ")));
    }
    let named = [("kind", Some(kind)), ("subject", Some(subject)), ("namespace", namespace)];
    for (field, value) in named {
        if let Some(value) = value {
            event.insert(field.to_owned(), value.into());
        }
    }
    Ok(serde_json::Value::Object(event).to_string())
}
