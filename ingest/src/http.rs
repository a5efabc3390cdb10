//! The HTTP side of ingest.

mod answer;
mod body;
mod counters;
mod create;
mod events;
mod formats;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;

use crate::ingest::Ingest;

/// The routes that write.
pub fn router(ingest: Arc<Ingest>) -> Router {
    Router::new()
        .route("/v1/events", post(events::post_events))
        .route(
            "/v1/counters/{kind}/{subject}",
            post(counters::post_verb).put(create::put_counter).delete(counters::delete_counter),
        )
        .with_state(ingest)
}
