//! The fingerprint of a record: how a log is recognised when a fold resumes on it.

use crate::position::Offset;
use crate::wire;

/// Names one record well enough to tell it from another at the same offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// Where the record stands.
    pub offset: Offset,
    /// CRC-32C of its key and its value (see [`Fingerprint::checksum`]).
    pub crc32c: u32,
    /// When the log appended it, in milliseconds since 1970.
    pub append_time_ms: i64,
}

impl Fingerprint {
    /// The fingerprint of a record.
    pub fn of(offset: Offset, key: &[u8], value: &[u8], append_time_ms: i64) -> Self {
        Fingerprint { offset, crc32c: Self::checksum(key, value), append_time_ms }
    }

    /// CRC-32C (Castagnoli) over the key's length (4 bytes, little endian), the key and the value.
    pub fn checksum(key: &[u8], value: &[u8]) -> u32 {
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes();
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&length), key), value)
    }

    pub(crate) fn to_wire(self) -> wire::Fingerprint {
        wire::Fingerprint {
            offset: self.offset.0,
            crc32c: self.crc32c,
            append_time_ms: self.append_time_ms,
        }
    }

    pub(crate) fn from_wire(wire: &wire::Fingerprint) -> Self {
        Fingerprint {
            offset: Offset(wire.offset),
            crc32c: wire.crc32c,
            append_time_ms: wire.append_time_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_moved_between_key_and_value_changes_the_checksum() {
        assert_ne!(Fingerprint::checksum(b"ab", b"c"), Fingerprint::checksum(b"a", b"bc"));
    }
}
