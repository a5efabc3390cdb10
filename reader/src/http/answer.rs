//! Answers: what is known of a counter, as JSON, with the validators that caches need.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tally_proto::api::{CounterValue, ShardAnswer, Total};

use super::query::{Numbers, ReadQuery};
use crate::cache::Shown;
use crate::reader::{Reader, Seen};
use crate::reduce::Reduced;

/// One counter of a subject; a counter that nobody wrote is 0.
pub(super) fn value(reader: &Reader, seen: &Seen, kind: &str, query: &ReadQuery) -> CounterValue {
    let nobody;
    let shown = match seen.snapshot.counters.get(kind) {
        Some(shown) => shown,
        None => {
            nobody = Shown::from(Reduced::default());
            &nobody
        }
    };
    let as_of = seen.snapshot.as_of.as_ref();
    let staleness = |at_ms: i64| u64::try_from(reader.clock.unix_ms() - at_ms).unwrap_or(0);
    let total = match (query.numbers, i64::try_from(shown.reduced.total)) {
        (Numbers::Json, Ok(total)) => Total::Number(total),
        _ => Total::Text(shown.total.clone()),
    };
    CounterValue {
        total,
        display: shown.display.clone(),
        as_of: as_of.map(|(_, text)| text.clone()),
        staleness_ms: as_of.map(|(ms, _)| staleness(*ms)),
        exact: true,
        stale: seen.stale,
        shards: query.shards.then(|| shards(&shown.reduced)),
    }
}

fn shards(reduced: &Reduced) -> Vec<ShardAnswer> {
    let shard = |(partition, partial, as_of): &(_, i64, _)| {
        let (tally_proto::Partition(partition), tally_proto::AsOf(as_of)) = (*partition, *as_of);
        ShardAnswer { partition, partial: partial.to_string(), as_of }
    };
    reduced.shards.iter().map(shard).collect()
}

/// The answer with its entity tag; 304 if the client has these totals already.
///
/// The tag is weak: it names the totals, not the age that the answer states beside them.
pub(super) fn respond<T: Serialize>(
    reader: &Reader,
    headers: &HeaderMap,
    tag: &str,
    answer: &T,
) -> Response {
    let etag = format!("W/\"{tag}\"");
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let tags = value.to_str().unwrap_or_default();
        tags == "*" || tags.split(',').any(|known| known.trim() == etag)
    });
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { Json(answer).into_response() };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, reader.cache_control.clone());
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}
