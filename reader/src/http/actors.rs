//! `GET /v1/actors/{actor}/{kind}?subjects=a,b` and `POST /v1/actors/{actor}/{kind}:read`: who is in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use tally_proto::{DEFAULT_NAMESPACE, Mode, SubjectId, check_name};
use tally_service::http::Problem;

use crate::reader::Reader;

/// Most subjects of one question.
const MOST_SUBJECTS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActorQuery {
    namespace: Option<String>,
    /// Separated by commas.
    subjects: Option<String>,
}

/// Asks for more subjects than an address holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActorBody {
    subjects: Vec<String>,
}

type Answer = Result<Json<BTreeMap<Box<str>, bool>>, Problem>;

/// Whether an actor is in, for subjects in the address.
pub(super) async fn get_actor(
    State(reader): State<Arc<Reader>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<ActorQuery>, QueryRejection>,
) -> Answer {
    let (Path((actor, kind)), Query(query)) = (path?, query?);
    let subjects = query.subjects.as_deref().unwrap_or_default();
    let subjects = subjects.split(',').filter(|subject| !subject.is_empty()).map(str::to_owned);
    answer(&reader, &actor, &kind, query.namespace.as_deref(), subjects.collect()).await
}

/// The same, for subjects in the body.
pub(super) async fn post_actor(
    State(reader): State<Arc<Reader>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<ActorQuery>, QueryRejection>,
    body: Result<Json<ActorBody>, JsonRejection>,
) -> Answer {
    let (Path((actor, rest)), Query(query)) = (path?, query?);
    let Some((kind, "read")) = rest.rsplit_once(':') else {
        let detail = "this reads with a verb: /v1/actors/user:9/like:read";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_verb", detail));
    };
    let Json(body) = body
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "malformed", error.body_text()))?;
    answer(&reader, &actor, kind, query.namespace.as_deref(), body.subjects).await
}

async fn answer(
    reader: &Reader,
    actor: &str,
    kind: &str,
    namespace: Option<&str>,
    subjects: Vec<String>,
) -> Answer {
    let refuse = |status, code, detail: String| Err(Problem::new(status, code, detail));
    let Some(kind) = reader.kinds.get(kind) else {
        return refuse(StatusCode::NOT_FOUND, "unknown_kind", "this kind is not declared".into());
    };
    if kind.mode != Mode::Set {
        let detail = format!("kind '{}' counts no actors", kind.name);
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, "counts_no_actors", detail);
    }
    if subjects.len() > MOST_SUBJECTS {
        let detail = format!("at most {MOST_SUBJECTS} subjects are read at once");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_many_subjects", detail);
    }
    let bad_name = |what: &str, error: &dyn std::fmt::Display| {
        Problem::new(StatusCode::BAD_REQUEST, "bad_name", format!("{what} {error}"))
    };
    check_name(actor).map_err(|error| bad_name("actor", &error))?;
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let ids: Result<Vec<SubjectId>, Problem> = subjects
        .iter()
        .map(|subject| {
            SubjectId::new(namespace, subject)
                .map_err(|error| bad_name("namespace or subject", &error))
        })
        .collect();
    let ids = ids?;
    let found = reader.who_is_in(kind, actor, &ids).await?;
    Ok(Json(ids.into_iter().map(|id| id.subject).zip(found).collect()))
}
