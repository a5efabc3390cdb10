//! The HTTP side of ingest.

mod answer;
mod body;
mod counters;
mod events;
mod formats;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::post;
use tower_http::decompression::RequestDecompressionLayer;

use crate::ingest::Ingest;

/// The routes that write.
pub fn router(ingest: Arc<Ingest>) -> Router {
    Router::new()
        .route("/v1/events", post(events::post_events))
        .route("/v1/counters/{kind}/{subject}", post(counters::post_verb))
        .layer(RequestDecompressionLayer::new())
        .layer(middleware::from_fn(body::check_encoding))
        .with_state(ingest)
}
