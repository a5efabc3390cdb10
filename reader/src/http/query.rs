//! What a read may ask for.

use axum::http::StatusCode;
use serde::Deserialize;
use tally_proto::{DEFAULT_NAMESPACE, SubjectId};
use tally_service::http::Problem;

/// How totals stand in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Numbers {
    /// As strings, which every client reads exactly.
    #[default]
    Text,
    /// As numbers.
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    namespace: Option<String>,
    #[serde(default)]
    pub(super) numbers: Numbers,
    #[serde(default)]
    pub(super) shards: bool,
    after: Option<String>,
}

impl ReadQuery {
    /// The subject that is asked for, if all of the question can be answered.
    pub(super) fn subject(&self, subject: &str) -> Result<SubjectId, Problem> {
        if self.after.is_some() {
            let detail = "'after' is not supported by this version yet";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "not_supported", detail));
        }
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        SubjectId::new(namespace, subject).map_err(|error| {
            let detail = format!("namespace or subject {error}");
            Problem::new(StatusCode::BAD_REQUEST, "bad_name", detail)
        })
    }
}
