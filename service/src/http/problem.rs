//! Errors over HTTP: `application/problem+json` (RFC 9457) with a stable code.

use std::borrow::Cow;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use problem_details::ProblemDetails;
use serde::Serialize;

/// A refusal or failure, as the client sees it.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    code: Cow<'static, str>,
    detail: Cow<'static, str>,
    retry_after_s: Option<u32>,
    members: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct Extensions {
    code: Cow<'static, str>,
    #[serde(flatten)]
    members: serde_json::Map<String, serde_json::Value>,
}

impl Problem {
    /// A problem with its status, stable code, and what to do about it.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Problem { code: code.into(), detail: detail.into(), ..Problem::bare(status) }
    }

    fn bare(status: StatusCode) -> Self {
        let (code, detail) = (Cow::default(), Cow::default());
        Problem { status, code, detail, retry_after_s: None, members: serde_json::Map::new() }
    }

    /// Adds a member beside those of the RFC.
    pub fn with(mut self, name: &str, value: serde_json::Value) -> Self {
        self.members.insert(name.to_owned(), value);
        self
    }

    /// Says when to try again.
    pub fn retry_after(self, seconds: u32) -> Self {
        Problem { retry_after_s: Some(seconds), ..self }
    }

    /// A path that leads nowhere.
    pub fn not_found() -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
    }

    /// A method that the path does not have.
    pub fn method_not_allowed() -> Self {
        let detail = "this path does not take this method";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Problem::new(rejection.status(), "bad_query", rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::new(rejection.status(), "bad_path", rejection.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let details = ProblemDetails::from_status_code(self.status)
            .with_detail(self.detail)
            .with_extensions(Extensions { code: self.code, members: self.members });
        let mut response = details.into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
