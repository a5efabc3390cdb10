//! `GET /v1/subjects/{subject}`.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use tally_proto::api::SubjectAnswer;
use tally_service::http::Problem;

use super::answer;
use super::query::ReadQuery;
use crate::reader::Reader;

/// All counters of a subject: one read of one store partition.
pub(super) async fn get_subject(
    State(reader): State<Arc<Reader>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<ReadQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(subject) = path?;
    let Query(query) = query?;
    let subject = query.subject(&subject)?;
    let seen = reader.read(&subject).await?;
    let counters = &seen.snapshot.counters;
    let tags: Vec<String> =
        counters.iter().map(|(kind, shown)| format!("{kind}={}", shown.total)).collect();
    let value = |kind: &str| (kind.into(), answer::value(&reader, &seen, kind, &query));
    let answer = SubjectAnswer {
        subject: subject.subject,
        namespace: subject.namespace,
        counters: counters.keys().map(|kind| value(kind)).collect(),
    };
    Ok(answer::respond(&reader, &headers, &tags.join(","), &answer))
}
