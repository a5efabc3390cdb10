//! `GET /v1/counters/{kind}/{subject}`.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tally_proto::api::CounterAnswer;
use tally_service::http::Problem;

use super::answer;
use super::query::ReadQuery;
use crate::reader::Reader;

/// One counter's total.
pub(super) async fn get_counter(
    State(reader): State<Arc<Reader>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<ReadQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((kind, subject)) = path?;
    let Query(query) = query?;
    let Some(kind) = reader.kinds.get(&kind) else {
        let detail = "this kind is not declared";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_kind", detail));
    };
    let subject = query.subject(&subject)?;
    let seen = reader.read(&subject).await?;
    let value = answer::value(&reader, &seen, &kind.name, &query);
    let tag = match &value.total {
        tally_proto::api::Total::Text(total) => total.clone(),
        tally_proto::api::Total::Number(total) => total.to_string(),
    };
    let answer = CounterAnswer {
        namespace: subject.namespace,
        kind: kind.name.clone(),
        subject: subject.subject,
        value,
    };
    Ok(answer::respond(&reader, &headers, &tag, &answer))
}
