//! The bytes of a record in the embedded log.

use bytes::{Buf, BufMut, Bytes};
use tally_proto::{ContentType, Offset};

use crate::port::{LogError, NewRecord, Record};

/// Append time (8), content type (1), length of the key (4), key, value.
pub(super) fn encode(record: &NewRecord, append_time_ms: i64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(13 + record.key.len() + record.value.len());
    bytes.put_i64(append_time_ms);
    bytes.put_u8(match record.content_type {
        ContentType::Json => 0,
        ContentType::Batch => 1,
        ContentType::Unknown => 2,
        ContentType::Control => 3,
    });
    bytes.put_u32(u32::try_from(record.key.len()).unwrap_or(u32::MAX));
    bytes.put_slice(&record.key);
    bytes.put_slice(&record.value);
    bytes
}

/// The record of these bytes.
pub(super) fn decode(offset: Offset, bytes: &[u8]) -> Result<Record, LogError> {
    let damaged = || LogError::Damaged(format!("the record at offset {offset} cannot be read"));
    let mut rest = Bytes::copy_from_slice(bytes);
    if rest.len() < 13 {
        return Err(damaged());
    }
    let append_time_ms = rest.get_i64();
    let content_type = match rest.get_u8() {
        0 => ContentType::Json,
        1 => ContentType::Batch,
        3 => ContentType::Control,
        _ => ContentType::Unknown,
    };
    let key_len = rest.get_u32() as usize;
    if rest.len() < key_len {
        return Err(damaged());
    }
    let key = rest.split_to(key_len);
    Ok(Record { offset, append_time_ms, key, value: rest, content_type })
}
