//! The body of a request: whole, in time, and no larger than it may be, also after decompression.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
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

/// The whole body.
pub(super) async fn read(body: Body, limit: Duration) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body has more than {MAX_BODY_BYTES} bytes, decompressed");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    match timeout(limit, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            let detail = format!("the body cannot be read: {error}");
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail))
        }
        Err(_) => {
            let detail = "the body did not arrive in time";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail))
        }
    }
}

/// The media type without its parameters, lower case; `None` if there is no such header.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}
