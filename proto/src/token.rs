//! The token of a write: which offsets a later read must take in. Opaque to clients.
//!
//! base64url without padding, of LEB128 varints: the epoch, then pairs of partition and next
//! offset in the order of partitions.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::limits::{MAX_OFFSET, MAX_PARTITIONS, MAX_TOKEN_BYTES};
use crate::position::{AsOf, Epoch, Partition};

/// Which offsets a write reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The generation of the log.
    pub epoch: Epoch,
    /// Per partition, the as-of that takes the write in.
    pub next_offsets: BTreeMap<Partition, AsOf>,
}

/// A text that is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this is not a token that a write returned")]
pub struct TokenError;

impl Token {
    /// A token of no writes.
    pub fn new(epoch: Epoch) -> Self {
        Token { epoch, next_offsets: BTreeMap::new() }
    }

    /// Takes one more write in.
    pub fn include(&mut self, partition: Partition, as_of: AsOf) {
        let slot = self.next_offsets.entry(partition).or_insert(as_of);
        *slot = (*slot).max(as_of);
    }

    /// The text of the token.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::from(self.epoch.number()));
        for (partition, as_of) in &self.next_offsets {
            put_varint(&mut bytes, u64::from(partition.0));
            put_varint(&mut bytes, as_of.0);
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The token of a text.
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenError);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError)?;
        let mut rest = bytes.as_slice();
        let epoch = Epoch::new(take_varint(&mut rest)?).map_err(|_| TokenError)?;
        let mut token = Token::new(epoch);
        while !rest.is_empty() {
            let partition = u32::try_from(take_varint(&mut rest)?).map_err(|_| TokenError)?;
            let as_of = take_varint(&mut rest)?;
            if partition >= MAX_PARTITIONS || as_of > MAX_OFFSET {
                return Err(TokenError);
            }
            token.include(Partition(partition), AsOf(as_of));
        }
        Ok(token)
    }
}

fn put_varint(bytes: &mut Vec<u8>, value: u64) {
    prost::encoding::encode_varint(value, bytes);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, TokenError> {
    prost::encoding::decode_varint(bytes).map_err(|_| TokenError)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_survives_its_text(pairs: BTreeMap<u16, u32>) {
            let mut token = Token::new(Epoch::FIRST);
            for (partition, as_of) in pairs {
                token.include(Partition(u32::from(partition) % 1024), AsOf(u64::from(as_of)));
            }
            prop_assert_eq!(Token::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn any_text_is_a_token_or_refused(text: String) {
            let _ = Token::decode(&text);
        }
    }
}
