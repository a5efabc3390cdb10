//! `GET /v1/actors/{actor}/{kind}?subjects=a,b`, `POST /v1/actors/{actor}/{kind}:read` and
//! `GET /v1/counters/{kind}/{subject}/actors`: who is in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use tally_proto::api::ActorsAnswer;
use tally_proto::{CounterId, DEFAULT_NAMESPACE, Kind, Mode, SubjectId, check_name};
use tally_service::http::Problem;

use crate::members::Cursor;
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
    let kind = set_kind(reader, kind)?;
    if subjects.len() > MOST_SUBJECTS {
        let detail = format!("at most {MOST_SUBJECTS} subjects are read at once");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_subjects", detail));
    }
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    namespace: Option<String>,
    limit: Option<usize>,
    /// `next` of the page before.
    after: Option<String>,
}

/// Who is in, page by page.
pub(super) async fn list_actors(
    State(reader): State<Arc<Reader>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<ActorsAnswer>, Problem> {
    let (Path((kind, subject)), Query(query)) = (path?, query?);
    let kind = set_kind(&reader, &kind)?;
    let refuse = |code, detail: String| Problem::new(StatusCode::BAD_REQUEST, code, detail);
    let limit = query.limit.unwrap_or(100);
    if !(1..=MOST_SUBJECTS).contains(&limit) {
        return Err(refuse("bad_limit", format!("'limit' must be between 1 and {MOST_SUBJECTS}")));
    }
    let after = query.after.as_deref().map(str::parse::<Cursor>).transpose();
    let after = after
        .map_err(|()| refuse("bad_cursor", "'after' is the 'next' of a page before".into()))?;
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let counter = CounterId::new(namespace, &kind.name, &subject)
        .map_err(|error| bad_name("namespace or subject", &error))?;
    let page = reader.list_actors(&counter, after, limit).await?;
    Ok(Json(ActorsAnswer { actors: page.actors, next: page.next.map(|next| next.to_string()) }))
}

/// A declared kind that counts actors.
fn set_kind<'r>(reader: &'r Reader, kind: &str) -> Result<&'r Kind, Problem> {
    let Some(kind) = reader.kinds.get(kind) else {
        let detail = "this kind is not declared";
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_kind", detail));
    };
    if kind.mode != Mode::Set {
        let detail = format!("kind '{}' counts no actors", kind.name);
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "counts_no_actors", detail));
    }
    Ok(kind)
}

fn bad_name(what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_name", format!("{what} {error}"))
}
