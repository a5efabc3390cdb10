//! The ledger: whether an actor is in, once a counter has too many to list them in its fact.
//!
//! Invariant: like a fact, an entry holds only what the log determines; its as-of is the one of
//! the actor's last change, stands inside, and equals the stamp it is written with.

use bytes::Bytes;

use crate::blob::{self, BlobError};
use crate::position::{AsOf, Epoch, PositionError, Stamp};
use crate::route::partition_of;
use crate::wire::LedgerEntryV1;

const VERSION: u8 = 1;

/// What is known of one actor; counter and actor are its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The generation of the log that the as-of belongs to.
    pub epoch: Epoch,
    /// The next offset after the actor's last change, or after the spill.
    pub as_of: AsOf,
    /// Whether the actor is in.
    pub is_in: bool,
}

impl LedgerEntry {
    /// Store partitions that one counter's ledger is dealt over: a hundred million actors are
    /// some hundred megabytes in each, which stores still like.
    pub const BUCKETS: u32 = 64;

    /// The store partition of an actor's entry.
    pub fn bucket(actor: &str) -> u32 {
        partition_of(actor.as_bytes(), Self::BUCKETS).0
    }

    /// The timestamp that the entry is written with.
    pub fn stamp(&self) -> Result<Stamp, PositionError> {
        Stamp::new(self.epoch, self.as_of)
    }

    /// Whether it speaks of the ledger that a fact spilled to at this stamp: what is older is void.
    pub fn is_since(&self, spilled: Stamp) -> bool {
        self.stamp().is_ok_and(|stamp| stamp >= spilled)
    }

    /// The bytes of the entry: one cell.
    pub fn encode(&self) -> Bytes {
        let epoch = u32::from(self.epoch.number());
        blob::seal(VERSION, &LedgerEntryV1 { epoch, as_of: self.as_of.0, is_in: self.is_in })
    }

    /// The entry of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        let wire: LedgerEntryV1 = blob::open(VERSION, bytes)?;
        let epoch = Epoch::new(u64::from(wire.epoch))?;
        let entry = LedgerEntry { epoch, as_of: AsOf(wire.as_of), is_in: wire.is_in };
        entry.stamp()?;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn version_1_is_read_and_written_as_it_always_was() {
        let entry = LedgerEntry { epoch: Epoch::FIRST, as_of: AsOf(300), is_in: true };
        let golden = [1, 8, 1, 16, 172, 2, 24, 1];
        assert_eq!(entry.encode().as_ref(), golden);
        assert_eq!(LedgerEntry::decode(&golden), Ok(entry));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_entry_or_an_error(bytes: Vec<u8>) {
            if let Ok(entry) = LedgerEntry::decode(&bytes) {
                prop_assert_eq!(LedgerEntry::decode(&entry.encode()), Ok(entry));
            }
        }
    }
}
