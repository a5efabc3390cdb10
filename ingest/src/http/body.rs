//! The body of a request: whole, in time, and no larger than it may be, also after decompression.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tally_proto::limits::MAX_BODY_BYTES;
use tally_service::clock::timeout;
use tally_service::http::Problem;

/// Refuses encodings that nobody would decode, before the decoder does so without a word.
pub(super) async fn check_encoding(request: Request, next: Next) -> Response {
    let encoding = request.headers().get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    match encoding {
        None | Some(b"identity" | b"gzip" | b"zstd") => next.run(request).await,
        Some(_) => {
            let detail = "content-encoding must be gzip, zstd or identity";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Problem::new(status, "unsupported_encoding", detail).into_response()
        }
    }
}

/// What is read and dropped of a body that is too large, so that the client is there to hear it.
const DRAINED_BYTES: usize = 8 * MAX_BODY_BYTES;

/// The whole body.
pub(super) async fn read(body: Body, limit: Duration) -> Result<Bytes, Problem> {
    timeout(limit, gather(body)).await.unwrap_or_else(|_| {
        let detail = "the body did not arrive in time";
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail))
    })
}

async fn gather(mut body: Body) -> Result<Bytes, Problem> {
    let mut gathered = BytesMut::new();
    let mut seen: usize = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let detail = format!("the body cannot be read: {error}");
            Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen <= MAX_BODY_BYTES {
            gathered.extend_from_slice(&data);
        } else if seen > DRAINED_BYTES {
            break;
        } else {
            gathered = BytesMut::new();
        }
    }
    if seen > MAX_BODY_BYTES {
        let detail = format!("the body has more than {MAX_BODY_BYTES} bytes, decompressed");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail));
    }
    Ok(gathered.freeze())
}

/// The media type without its parameters, lower case; `None` if there is no such header.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}
