//! A record of the events topic, whoever wrote it: a packed batch, or JSON.

use bytes::Bytes;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::batch::EventBatch;
use crate::control::Reset;
use crate::event::{EventError, RawEvent};
use crate::limits::MAX_READ_RECORD_BYTES;

/// The record header that names what the value is.
pub const CONTENT_TYPE_HEADER: &str = "content-type";

const BATCH: &str = "application/vnd.tally.events.v1+protobuf";
const CONTROL: &str = "application/vnd.tally.control.v1+protobuf";
const JSON: &str = "application/json";

/// What a record's value is, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    /// An [`EventBatch`].
    Batch,
    /// A change of how the partition folds.
    Control,
    /// JSON, or nothing said: any producer may write it.
    Json,
    /// One of ours that this build does not know: a newer build wrote it.
    Unknown,
}

impl ContentType {
    /// The content type that a header names; `None` if the record has no such header.
    pub fn of(header: Option<&[u8]>) -> Self {
        match header {
            Some(header) if header == BATCH.as_bytes() => ContentType::Batch,
            Some(header) if header == CONTROL.as_bytes() => ContentType::Control,
            Some(header) if header.starts_with(b"application/vnd.tally.") => ContentType::Unknown,
            _ => ContentType::Json,
        }
    }

    /// The header's value.
    pub fn header(self) -> &'static str {
        match self {
            ContentType::Batch => BATCH,
            ContentType::Control => CONTROL,
            ContentType::Json => JSON,
            ContentType::Unknown => "application/vnd.tally.unknown",
        }
    }
}

/// Why a whole record cannot be read. It is a no-op of the fold, and a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Nothing in it.
    #[error("the record has no value")]
    Empty,
    /// Past [`MAX_READ_RECORD_BYTES`].
    #[error("the record has {0} bytes, at most {MAX_READ_RECORD_BYTES} are read")]
    TooLarge(usize),
    /// A content type that a newer build writes: this build must stop, not guess.
    #[error("the record's content type is not one that this build knows")]
    UnknownContentType,
    /// A batch whose bytes contradict themselves.
    #[error("the record is not a batch of events: {0}")]
    Damaged(String),
    /// Neither a batch nor UTF-8.
    #[error("the record is not UTF-8, so it is not JSON")]
    NotUtf8,
    /// Not JSON.
    #[error("{0}")]
    Json(#[from] EventError),
}

impl RecordError {
    /// The stable code, as it stands in dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            RecordError::Empty => "empty",
            RecordError::TooLarge(_) => "too_large",
            RecordError::UnknownContentType => "unknown_content_type",
            RecordError::Damaged(_) => "damaged_batch",
            RecordError::NotUtf8 => "not_utf8",
            RecordError::Json(error) => error.code(),
        }
    }
}

/// What a record holds.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A packed batch.
    Batch(EventBatch),
    /// A counter begins anew.
    Reset(Reset),
    /// One JSON event.
    One(Result<RawEvent<'a>, EventError>),
    /// A JSON array: each item is read on its own, so that a bad one spoils itself only.
    Array(Vec<&'a RawValue>),
}

/// Reads a record's value.
pub fn decode_record(content_type: ContentType, value: &Bytes) -> Result<Decoded<'_>, RecordError> {
    if value.is_empty() {
        return Err(RecordError::Empty);
    }
    if value.len() > MAX_READ_RECORD_BYTES {
        return Err(RecordError::TooLarge(value.len()));
    }
    match content_type {
        ContentType::Batch => return EventBatch::decode(value.clone()).map(Decoded::Batch),
        ContentType::Control => return Reset::decode(value.clone()).map(Decoded::Reset),
        ContentType::Unknown => return Err(RecordError::UnknownContentType),
        ContentType::Json => {}
    }
    let json = std::str::from_utf8(value).map_err(|_| RecordError::NotUtf8)?;
    if json.trim_ascii_start().starts_with('[') {
        serde_json::from_str(json)
            .map(Decoded::Array)
            .map_err(|error| RecordError::Json(EventError::malformed(error)))
    } else {
        Ok(Decoded::One(RawEvent::parse(json)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_needs_no_content_type() {
        let value = Bytes::from_static(br#" {"kind":"view","subject":"a"}"#);
        assert!(matches!(decode_record(ContentType::Json, &value), Ok(Decoded::One(Ok(_)))));
        let value = Bytes::from_static(br#"[{"kind":"view","subject":"a"}, 7]"#);
        let Ok(Decoded::Array(items)) =
            decode_record(ContentType::of(Some(b"application/json")), &value)
        else {
            panic!("an array")
        };
        assert_eq!(items.len(), 2);
        assert!(RawEvent::parse(items[1].get()).is_err());
    }

    #[test]
    fn a_content_type_of_a_newer_build_is_told_apart_from_garbage() {
        let value = Bytes::from_static(b"x");
        let newer = ContentType::of(Some(b"application/vnd.tally.events.v2+protobuf"));
        assert_eq!(decode_record(newer, &value).unwrap_err(), RecordError::UnknownContentType);
        assert_eq!(
            decode_record(ContentType::Json, &Bytes::new()).unwrap_err(),
            RecordError::Empty
        );
        let value = Bytes::from_static(&[0xff, 0xfe]);
        assert_eq!(decode_record(ContentType::Json, &value).unwrap_err(), RecordError::NotUtf8);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, packed: bool) {
            let value = Bytes::from(bytes);
            let content_type = if packed { ContentType::Batch } else { ContentType::Json };
            let _ = decode_record(content_type, &value);
        }
    }
}
