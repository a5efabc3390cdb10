//! `POST /v1/events`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use tally_proto::limits::MAX_REQUEST_EVENTS;
use tally_service::http::Problem;

use super::answer::{self, Ack};
use super::body;
use super::formats::Format;
use crate::ingest::Ingest;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    ack: Ack,
}

/// Takes events in any of the formats; 200 only when the log has them.
pub(super) async fn post_events(
    State(ingest): State<Arc<Ingest>>,
    query: Result<Query<EventsQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Query(query) = query?;
    let format = Format::of(body::media_type(&headers).as_deref()).ok_or_else(|| {
        let detail = "content-type must be application/json, application/x-ndjson, \
                      application/cloudevents+json or application/cloudevents-batch+json";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    })?;
    let limit = Duration::from_millis(ingest.settings.body_timeout_ms);
    let body = body::read(&headers, body, limit).await?;
    let malformed = |detail| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    let text = std::str::from_utf8(&body).map_err(|_| malformed("the body is not UTF-8".into()))?;
    let items = format.read(text).map_err(malformed)?;
    if items.len() > MAX_REQUEST_EVENTS {
        let detail = format!(
            "the request has {} events, at most {MAX_REQUEST_EVENTS} are taken at once",
            items.len()
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_events", detail));
    }
    answer::write(&ingest, &items, query.ack).await
}
