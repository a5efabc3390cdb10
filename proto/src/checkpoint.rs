//! The checkpoint of a partition: everything below its as-of is durable in facts.
//!
//! Invariant: like a fact, it holds only what the log determines.

use bytes::Bytes;

use crate::blob::{self, BlobError};
use crate::fingerprint::Fingerprint;
use crate::position::{AsOf, Epoch, PositionError, Stamp};
use crate::wire::{CheckpointV1, CheckpointV2};

const PLAIN: u8 = 1;
const WITH_WINDOW: u8 = 2;

/// Where a fold resumes, and the record by which it knows that the log is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The generation of the log.
    pub epoch: Epoch,
    /// Everything below it is durable.
    pub as_of: AsOf,
    /// The last record that was taken in; `None` where an epoch begins.
    pub last: Option<Fingerprint>,
    /// Where the ids begin that are remembered: from here to `as_of` they are read again.
    pub window_from: AsOf,
}

impl Checkpoint {
    /// The timestamp that the checkpoint is written with.
    pub fn stamp(&self) -> Result<Stamp, PositionError> {
        Stamp::new(self.epoch, self.as_of)
    }

    /// The bytes of the checkpoint: one cell.
    pub fn encode(&self) -> Bytes {
        let (epoch, as_of) = (u32::from(self.epoch.number()), self.as_of.0);
        let last = self.last.map(Fingerprint::to_wire);
        match as_of.saturating_sub(self.window_from.0) {
            0 => blob::seal(PLAIN, &CheckpointV1 { epoch, as_of, last }),
            window_offsets => {
                blob::seal(WITH_WINDOW, &CheckpointV2 { epoch, as_of, last, window_offsets })
            }
        }
    }

    /// The checkpoint of these bytes. Its last record must lie below its as-of.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        let damaged = |why: &str| BlobError::Damaged(why.into());
        let wire = if bytes.first() == Some(&WITH_WINDOW) {
            blob::open(WITH_WINDOW, bytes)?
        } else {
            let CheckpointV1 { epoch, as_of, last } = blob::open(PLAIN, bytes)?;
            CheckpointV2 { epoch, as_of, last, window_offsets: 0 }
        };
        let window_from = wire.as_of.checked_sub(wire.window_offsets);
        let checkpoint = Checkpoint {
            epoch: Epoch::new(u64::from(wire.epoch))?,
            as_of: AsOf(wire.as_of),
            last: wire.last.as_ref().map(Fingerprint::from_wire),
            window_from: AsOf(window_from.ok_or_else(|| damaged("its window begins below 0"))?),
        };
        checkpoint.stamp()?;
        if checkpoint.last.is_some_and(|last| !checkpoint.as_of.covers(last.offset)) {
            return Err(damaged("its last record is not below its as-of"));
        }
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::position::Offset;

    /// The bytes of version 1, for ever.
    const GOLDEN_V1: &[u8] = include_bytes!("../golden/checkpoint-v1.bin");

    fn sample() -> Checkpoint {
        let last = Fingerprint::of(Offset(99), b"video:1", b"{}", 1_795_176_001_250);
        Checkpoint {
            epoch: Epoch::FIRST,
            as_of: AsOf(100),
            last: Some(last),
            window_from: AsOf(100),
        }
    }

    #[test]
    fn version_1_is_read_and_written_as_it_always_was() {
        assert_eq!(sample().encode().as_ref(), GOLDEN_V1);
        assert_eq!(Checkpoint::decode(GOLDEN_V1), Ok(sample()));
    }

    #[test]
    fn version_2_says_where_the_window_begins() {
        let checkpoint = Checkpoint { window_from: AsOf(93), last: None, ..sample() };
        let golden = [2, 8, 1, 16, 100, 32, 7];
        assert_eq!(checkpoint.encode().as_ref(), golden);
        assert_eq!(Checkpoint::decode(&golden), Ok(checkpoint));
        let too_wide = [2, 8, 1, 16, 100, 32, 101];
        assert!(matches!(Checkpoint::decode(&too_wide), Err(BlobError::Damaged(_))));
    }

    #[test]
    fn a_checkpoint_that_does_not_hold_its_last_record_is_damaged() {
        let wrong = Checkpoint { as_of: AsOf(99), window_from: AsOf(99), ..sample() };
        assert!(matches!(Checkpoint::decode(&wrong.encode()), Err(BlobError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_checkpoint_or_an_error(bytes: Vec<u8>) {
            if let Ok(checkpoint) = Checkpoint::decode(&bytes) {
                prop_assert_eq!(Checkpoint::decode(&checkpoint.encode()), Ok(checkpoint));
            }
        }
    }
}
