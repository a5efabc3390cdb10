//! The answer to a write: 200, 202, 207, 422, 429 or 503.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tally_proto::api::{Accepted, Rejected};
use tally_proto::{Event, EventError, RawEvent, Token};
use tally_service::http::Problem;

use crate::ingest::{Ingest, IngestError};
use crate::metrics::ByCode;

/// When a client should come again after a 429 or 503, in seconds.
const RETRY_AFTER_S: u32 = 1;

/// What a write may ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ack {
    /// Answer when the log has it.
    #[default]
    Durable,
    /// Answer at once; nobody promises anything.
    Accepted,
}

/// Checks the items, queues those that are right, and answers for all of them.
pub(super) async fn write(
    ingest: &Ingest,
    items: &[Result<RawEvent<'_>, EventError>],
    ack: Ack,
) -> Result<Response, Problem> {
    let mut events: Vec<Event<'_>> = Vec::with_capacity(items.len());
    let mut rejected = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let checked = match item {
            Ok(raw) => raw.check(&ingest.kinds),
            Err(error) => Err(error.clone()),
        };
        match checked {
            Ok(event) => events.push(event),
            Err(error) => rejected.push(reject(ingest, index, &error)),
        }
    }
    let accepted = events.len();
    let receipt = ingest.push(&events)?;
    let (status, token) = match ack {
        Ack::Accepted => (StatusCode::ACCEPTED, None),
        Ack::Durable => (StatusCode::OK, Some(receipt.durable().await?)),
    };
    let status = match (accepted, rejected.len()) {
        (_, 0) => status,
        (0, _) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::MULTI_STATUS,
    };
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        let detail = "no event of the request can be counted; 'rejected' says why";
        let problem = Problem::new(status, "all_rejected", detail);
        return Err(problem.with("accepted", 0.into()).with("rejected", json!(rejected)));
    }
    Ok(respond(status, accepted, rejected, token))
}

fn reject(ingest: &Ingest, index: usize, error: &EventError) -> Rejected {
    let code = error.code();
    ingest.metrics.rejected.get_or_create(&ByCode { code: code.to_owned() }).inc();
    Rejected { index, code: code.into(), detail: error.to_string(), retryable: false }
}

pub(super) fn respond(
    status: StatusCode,
    accepted: usize,
    rejected: Vec<Rejected>,
    token: Option<Token>,
) -> Response {
    const TOKEN: HeaderName = HeaderName::from_static("tally-token");
    let token = token.map(|token| token.encode());
    let header = token.as_deref().and_then(|token| HeaderValue::from_str(token).ok());
    let mut response = (status, Json(Accepted { accepted, rejected, token })).into_response();
    // A token of very many partitions is left to the body.
    if let Some(header) = header.filter(|header| header.len() <= 4_096) {
        response.headers_mut().insert(TOKEN, header);
    }
    response
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        let (status, code) = match &error {
            IngestError::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            IngestError::InDoubt(_) => (StatusCode::SERVICE_UNAVAILABLE, "in_doubt"),
        };
        Problem::new(status, code, error.to_string()).retry_after(RETRY_AFTER_S)
    }
}
