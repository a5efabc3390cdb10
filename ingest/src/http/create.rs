//! `PUT /v1/counters/{kind}/{subject}`: createCounter. Counters need not be created; it says how many
//! shards one will need.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tally_proto::Mode;
use tally_service::http::Problem;
use tally_store::StoreError;

use super::body;
use super::counters::{CounterQuery, counter};
use crate::ingest::Ingest;
use crate::predict::{self, Hints};

/// What is known of the counter: how many shards it needs, or by what that is predicted.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Wish {
    Shards { shards: u32 },
    Hints(Hints),
}

/// 201 if it was not known, 200 if it was; either way what is said now holds.
pub(super) async fn put_counter(
    State(ingest): State<Arc<Ingest>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<CounterQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Path((kind, subject)) = path?;
    let Query(query) = query?;
    let limit = Duration::from_millis(ingest.settings.body_timeout_ms);
    let body = body::read(&headers, body, limit).await?;
    let counter = counter(&ingest, (&kind, &subject), &query.namespace)?;
    let body = if body.trim_ascii().is_empty() { &b"{}"[..] } else { &body };
    let wish: Wish = serde_json::from_slice(body).map_err(|_| {
        let detail = "the body says how many: {\"shards\": 8}, or what is known: {\"followers\": \
                      12000000, \"visibility\": \"public\" or \"unlisted\" or \"private\", \
                      \"trending\": true}";
        Problem::new(StatusCode::BAD_REQUEST, "malformed", detail)
    })?;
    let spread = ingest.kinds.get(&kind).filter(|kind| kind.mode == Mode::Set).map(|k| k.spread);
    let refuse =
        |code, detail: String| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail));
    let shards = match (wish, spread) {
        (Wish::Shards { .. }, Some(spread)) => {
            let detail = format!(
                "kind '{kind}' counts actors, each in a slot of its own among {spread}, for life: \
                 leave 'shards' out"
            );
            return refuse("shards_on_set", detail);
        }
        (Wish::Shards { shards: 0 }, None) => {
            return refuse("no_shards", "'shards' must be 1 at least".into());
        }
        (Wish::Shards { shards }, None) => shards.min(ingest.partitions()),
        (Wish::Hints(_), Some(spread)) => spread.min(ingest.partitions()),
        (Wish::Hints(hints), None) => {
            predict::shards(hints, ingest.settings.slot_rate, ingest.partitions())
        }
    };
    let is_new = ingest.create(&counter, shards).await.map_err(store_away)?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "namespace": counter.subject.namespace, "kind": kind, "subject": subject, "shards": shards,
    });
    Ok((status, Json(answer)).into_response())
}

/// What createCounter says is kept in the store.
pub(super) fn store_away(error: StoreError) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_away", error.to_string()).retry_after(1)
}
