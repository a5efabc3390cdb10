//! `/livez`, `/readyz`, `/metrics`: on every role.

use axum::Json;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;

use crate::health::Health;
use crate::metrics::Metrics;

/// The routes that operators and orchestrators ask.
pub fn router(health: Health, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(move || ready(health.clone())))
        .route("/metrics", get(move || export(metrics.clone())))
}

async fn ready(health: Health) -> impl IntoResponse {
    let problems = health.problems();
    let status = if problems.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": problems.is_empty(), "problems": problems })))
}

async fn export(metrics: Metrics) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.encode())
}
