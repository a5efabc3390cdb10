//! `GET /v1/dead-letters`: for operators; never cached.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tally_proto::api::{DeadLetterAnswer, DeadLettersAnswer};
use tally_proto::rfc3339;
use tally_service::http::Problem;
use tally_store::DeadLetter;

use crate::reader::Reader;

/// Most dead letters of one answer, and days that it may look back.
const MOST_LETTERS: usize = 10_000;
const MOST_DAYS: u16 = 400;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeadLettersQuery {
    days: u16,
    limit: usize,
}

impl Default for DeadLettersQuery {
    fn default() -> Self {
        DeadLettersQuery { days: 2, limit: 100 }
    }
}

/// The dead letters of the last days, by partition, day and offset.
pub(super) async fn get_dead_letters(
    State(reader): State<Arc<Reader>>,
    query: Result<Query<DeadLettersQuery>, QueryRejection>,
) -> Result<Json<DeadLettersAnswer>, Problem> {
    let Query(query) = query?;
    let (days, limit) = (query.days.clamp(1, MOST_DAYS), query.limit.min(MOST_LETTERS));
    let letters = reader.dead_letters(days, limit).await?;
    Ok(Json(DeadLettersAnswer { dead_letters: letters.into_iter().map(answer).collect() }))
}

fn answer(letter: DeadLetter) -> DeadLetterAnswer {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    DeadLetterAnswer {
        partition: letter.partition.0,
        offset: letter.offset.0,
        index: letter.index,
        appended_at: rfc3339(letter.append_time_ms),
        key: text(&letter.key),
        value: text(&letter.value),
        value_base64: STANDARD.encode(&letter.value),
        code: letter.code,
        reason: letter.reason,
    }
}
