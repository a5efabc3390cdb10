//! `POST /v1/counters/{kind}/{subject}:{verb}`: writeCounter.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use tally_proto::RawEvent;
use tally_service::http::Problem;

use super::answer::{self, Ack};
use super::body;
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
    let subject = match rest.rsplit_once(':') {
        Some((subject, "add")) => subject,
        _ => {
            let detail = "a write ends in a verb, such as /v1/counters/view/video:123:add";
            return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_verb", detail));
        }
    };
    if query.return_what.is_some() {
        let detail = "'return' is not supported by this version yet";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "not_supported", detail));
    }
    let limit = Duration::from_millis(ingest.settings.body_timeout_ms);
    let body = body::read(&headers, body, limit).await?;
    let malformed = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    let json = match std::str::from_utf8(&body) {
        Ok(text) if text.trim_ascii().is_empty() => "{}",
        Ok(text) => text,
        Err(_) => return Err(malformed("the body is not UTF-8".into())),
    };
    let event = event_json(&kind, subject, query.namespace.as_deref(), json).map_err(malformed)?;
    answer::write(&ingest, &[RawEvent::parse(&event)], query.ack).await
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
