//! Blobs: a leading version byte, then a Protobuf message. What is durable is read for ever.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use thiserror::Error;

use crate::position::PositionError;

/// Why a durable blob cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlobError {
    /// No bytes at all.
    #[error("the blob is empty")]
    Empty,
    /// Written by a later build: stop, and let that build go on.
    #[error("the blob has version {0}, which this build does not know (a newer build wrote it)")]
    Version(u8),
    /// Not the message that its version says.
    #[error("the blob is damaged: {0}")]
    Damaged(String),
    /// Names a place that does not exist.
    #[error("the blob is damaged: {0}")]
    Position(#[from] PositionError),
}

/// The version byte and the message.
pub(crate) fn seal(version: u8, message: &impl Message) -> Bytes {
    let mut blob = BytesMut::with_capacity(message.encoded_len().saturating_add(1));
    blob.put_u8(version);
    blob.put(message.encode_to_vec().as_slice());
    blob.freeze()
}

/// The message of a blob whose version byte must be `version`.
pub(crate) fn open<M: Message + Default>(version: u8, blob: &[u8]) -> Result<M, BlobError> {
    match blob.split_first() {
        None => Err(BlobError::Empty),
        Some((found, body)) if *found == version => {
            M::decode(body).map_err(|error| BlobError::Damaged(error.to_string()))
        }
        Some((found, _)) => Err(BlobError::Version(*found)),
    }
}
