//! The body of a request: whole, in time, and no larger than it may be, also after decompression.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tally_proto::limits::MAX_BODY_BYTES;
use tally_service::clock::timeout;
use tally_service::http::Problem;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::decompression::{DecompressionBody, RequestDecompressionLayer};

/// What is read and dropped of a body that is too large, so that the client is there to hear it.
const DRAINED_BYTES: usize = 8 * MAX_BODY_BYTES;

/// The whole body, decompressed as its headers say.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: Duration,
) -> Result<Bytes, Problem> {
    let read = async {
        match headers.get(header::CONTENT_ENCODING) {
            None => gather(body).await,
            Some(encoding) if encoding == "identity" => gather(body).await,
            Some(encoding) if encoding == "gzip" || encoding == "zstd" => {
                let mut request = Request::new(body);
                request.headers_mut().insert(header::CONTENT_ENCODING, encoding.clone());
                decompress(request).await
            }
            Some(_) => {
                let detail = "content-encoding must be gzip, zstd or identity";
                let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                Err(Problem::new(status, "unsupported_encoding", detail))
            }
        }
    };
    timeout(limit, read).await.unwrap_or_else(|_| {
        let detail = "the body did not arrive in time";
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail))
    })
}

/// The layer decompresses while the body comes in, so that its size is bounded as it grows.
async fn decompress(request: Request) -> Result<Bytes, Problem> {
    let gathered = Arc::new(Mutex::new(None));
    let gather_into = gathered.clone();
    let service = service_fn(move |request: axum::http::Request<DecompressionBody<Body>>| {
        let gathered = gather_into.clone();
        async move {
            let body = gather(Body::new(request.into_body())).await;
            *gathered.lock() = Some(body);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    RequestDecompressionLayer::new().layer(service).oneshot(request).await.ok();
    let gathered = gathered.lock().take();
    gathered.unwrap_or_else(|| {
        let detail = "the body cannot be decompressed";
        Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail))
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
