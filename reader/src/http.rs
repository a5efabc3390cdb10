//! The HTTP side of the reader.

mod actors;
mod answer;
mod counters;
mod dead_letters;
mod query;
mod subjects;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tally_service::http::Problem;

use crate::reader::{ReadError, Reader};

/// The routes that read.
pub fn router(reader: Arc<Reader>) -> Router {
    Router::new()
        .route("/v1/counters/{kind}/{subject}", get(counters::get_counter))
        .route("/v1/subjects/{subject}", get(subjects::get_subject))
        .route("/v1/counters/{kind}/{subject}/actors", get(actors::list_actors))
        .route("/v1/actors/{actor}/{kind}", get(actors::get_actor).post(actors::post_actor))
        .route("/v1/dead-letters", get(dead_letters::get_dead_letters))
        .with_state(reader)
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable(error) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Problem::new(status, "store_away", error.to_string()).retry_after(1)
            }
            ReadError::Damaged(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Problem::new(status, "store_damaged", error.to_string())
            }
        }
    }
}
