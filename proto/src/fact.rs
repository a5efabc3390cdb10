//! The fact: "in partition P, counter c stands at T, taking in every record below O".
//!
//! Invariant: a fact holds only what the log determines, so two writers of one stamp write the
//! same bytes; its as-of stands inside and equals the stamp it is written with.

use bytes::Bytes;

use crate::blob::{self, BlobError};
use crate::position::{AsOf, Epoch, PositionError, Stamp};
use crate::wire::FactV1;

const VERSION: u8 = 1;

/// What one partition says of one counter; partition and counter are its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// The generation of the log that the offsets belong to.
    pub epoch: Epoch,
    /// Every record below it is taken in.
    pub as_of: AsOf,
    /// Raised by a reset; a reduce takes only the highest that it sees.
    pub generation: u32,
    /// The sum of deltas; one shard may be negative.
    pub total: i64,
}

impl Fact {
    /// The timestamp that the fact is written with.
    pub fn stamp(&self) -> Result<Stamp, PositionError> {
        Stamp::new(self.epoch, self.as_of)
    }

    /// The bytes of the fact: one cell.
    pub fn encode(&self) -> Bytes {
        blob::seal(
            VERSION,
            &FactV1 {
                epoch: u32::from(self.epoch.number()),
                as_of: self.as_of.0,
                generation: self.generation,
                total: self.total,
            },
        )
    }

    /// The fact of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        let wire: FactV1 = blob::open(VERSION, bytes)?;
        let fact = Fact {
            epoch: Epoch::new(u64::from(wire.epoch))?,
            as_of: AsOf(wire.as_of),
            generation: wire.generation,
            total: wire.total,
        };
        fact.stamp()?;
        Ok(fact)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of version 1, for ever.
    const GOLDEN_V1: &[u8] = include_bytes!("../golden/fact-v1.bin");

    fn sample() -> Fact {
        Fact { epoch: Epoch::FIRST, as_of: AsOf(1_234_567), generation: 2, total: -42 }
    }

    #[test]
    fn version_1_is_read_and_written_as_it_always_was() {
        assert_eq!(sample().encode().as_ref(), GOLDEN_V1);
        assert_eq!(Fact::decode(GOLDEN_V1), Ok(sample()));
    }

    #[test]
    fn a_fact_of_a_newer_build_is_refused() {
        assert_eq!(Fact::decode(&[2, 8, 1]), Err(BlobError::Version(2)));
        assert_eq!(Fact::decode(&[]), Err(BlobError::Empty));
    }

    proptest! {
        #[test]
        fn a_fact_survives_its_bytes(
            epoch in 1u64..=64, as_of in 0u64..1 << 44, generation: u32, total: i64,
        ) {
            let epoch = Epoch::new(epoch).unwrap();
            let fact = Fact { epoch, as_of: AsOf(as_of), generation, total };
            prop_assert_eq!(Fact::decode(&fact.encode()), Ok(fact));
        }

        #[test]
        fn any_bytes_give_a_fact_or_an_error(bytes: Vec<u8>) {
            if let Ok(fact) = Fact::decode(&bytes) {
                prop_assert_eq!(Fact::decode(&fact.encode()), Ok(fact));
            }
        }
    }
}
