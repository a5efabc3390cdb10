//! The fact: "in partition P, counter c stands at T, taking in every record below O".
//!
//! Invariant: a fact holds only what the log determines, so two writers of one stamp write the
//! same bytes; its as-of stands inside and equals the stamp it is written with.

use std::sync::Arc;

use bytes::Bytes;

use crate::blob::{self, BlobError};
use crate::name::check_name;
use crate::position::{AsOf, Epoch, PositionError, Stamp};
use crate::wire::{FactV1, FactV2};

const SUM: u8 = 1;
const ACTORS: u8 = 2;

/// What one partition says of one counter; partition and counter are its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The generation of the log that the offsets belong to.
    pub epoch: Epoch,
    /// Every record below it is taken in.
    pub as_of: AsOf,
    /// Raised by a reset; a reduce takes only the highest that it sees.
    pub generation: u64,
    /// The sum of deltas, or how many actors are in; one shard of a sum may be negative.
    pub total: i64,
    /// Who is in.
    pub members: Members,
}

/// Where it stands who is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Members {
    /// The counter counts no actors.
    #[default]
    None,
    /// While they are few, here, in the order of their bytes: no ledger is read or written.
    Inline(Arc<[Box<str>]>),
    /// In the ledger, for ever, since this stamp: older entries of it count as absent.
    Spilled(Stamp),
}

impl Fact {
    /// The timestamp that the fact is written with.
    pub fn stamp(&self) -> Result<Stamp, PositionError> {
        Stamp::new(self.epoch, self.as_of)
    }

    /// The bytes of the fact: one cell.
    pub fn encode(&self) -> Bytes {
        let (epoch, as_of) = (u32::from(self.epoch.number()), self.as_of.0);
        let (generation, total) = (self.generation, self.total);
        let (members, spilled) = match &self.members {
            Members::None => {
                return blob::seal(SUM, &FactV1 { epoch, as_of, generation, total });
            }
            Members::Inline(members) => (&members[..], None),
            Members::Spilled(since) => (&[][..], Some(*since)),
        };
        let members = members.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
        let spilled_epoch = spilled.map_or(0, |since| u32::from(since.epoch().number()));
        let spilled_as_of = spilled.map_or(0, |since| since.as_of().0);
        let fact =
            FactV2 { epoch, as_of, generation, total, members, spilled_epoch, spilled_as_of };
        blob::seal(ACTORS, &fact)
    }

    /// The fact of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        let (wire, members) = if bytes.first() == Some(&ACTORS) {
            let wire: FactV2 = blob::open(ACTORS, bytes)?;
            let members = read_members(&wire)?;
            let FactV2 { epoch, as_of, generation, total, .. } = wire;
            (FactV1 { epoch, as_of, generation, total }, members)
        } else {
            (blob::open(SUM, bytes)?, Members::None)
        };
        let fact = Fact {
            epoch: Epoch::new(u64::from(wire.epoch))?,
            as_of: AsOf(wire.as_of),
            generation: wire.generation,
            total: wire.total,
            members,
        };
        fact.stamp()?;
        Ok(fact)
    }
}

fn read_members(wire: &FactV2) -> Result<Members, BlobError> {
    let damaged = |why: &str| BlobError::Damaged(why.into());
    if wire.spilled_epoch != 0 {
        let epoch = Epoch::new(u64::from(wire.spilled_epoch))?;
        return Ok(Members::Spilled(Stamp::new(epoch, AsOf(wire.spilled_as_of))?));
    }
    let mut members: Vec<Box<str>> = Vec::with_capacity(wire.members.len());
    for bytes in &wire.members {
        let name = std::str::from_utf8(bytes).ok().filter(|name| check_name(name).is_ok());
        members.push(name.ok_or_else(|| damaged("an actor that is no name"))?.into());
    }
    if !members.is_sorted_by(|a, b| a < b) || i64::try_from(members.len()) != Ok(wire.total) {
        return Err(damaged("its members are not what it counts"));
    }
    Ok(Members::Inline(members.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of version 1, for ever.
    const GOLDEN_V1: &[u8] = include_bytes!("../golden/fact-v1.bin");

    fn sample() -> Fact {
        Fact {
            epoch: Epoch::FIRST,
            as_of: AsOf(1_234_567),
            generation: 2,
            total: -42,
            members: Members::None,
        }
    }

    #[test]
    fn version_1_is_read_and_written_as_it_always_was() {
        assert_eq!(sample().encode().as_ref(), GOLDEN_V1);
        assert_eq!(Fact::decode(GOLDEN_V1), Ok(sample()));
    }

    #[test]
    fn a_fact_of_a_newer_build_is_refused() {
        assert_eq!(Fact::decode(&[3, 8, 1]), Err(BlobError::Version(3)));
        assert_eq!(Fact::decode(&[]), Err(BlobError::Empty));
    }

    #[test]
    fn a_fact_about_actors_lists_them_or_says_since_when_it_does_not() {
        let listed = Members::Inline(["a".into(), "user:9".into()].into());
        let since = Stamp::new(Epoch::FIRST, AsOf(7)).unwrap();
        for (total, members) in [(2, listed), (900, Members::Spilled(since))] {
            let fact = Fact { total, members, ..sample() };
            assert_eq!(Fact::decode(&fact.encode()), Ok(fact));
        }
    }

    #[test]
    fn version_2_is_read_and_written_as_it_always_was() {
        let members = Members::Inline(["a".into(), "b".into()].into());
        let fact = Fact { epoch: Epoch::FIRST, as_of: AsOf(5), generation: 0, total: 2, members };
        let golden = [2, 8, 1, 16, 5, 32, 4, 42, 1, b'a', 42, 1, b'b'];
        assert_eq!(fact.encode().as_ref(), golden);
        assert_eq!(Fact::decode(&golden), Ok(fact));
        let twice = [2, 8, 1, 16, 5, 32, 4, 42, 1, b'a', 42, 1, b'a'];
        assert!(matches!(Fact::decode(&twice), Err(BlobError::Damaged(_))));
        let other_total = [2, 8, 1, 16, 5, 32, 6, 42, 1, b'a', 42, 1, b'b'];
        assert!(matches!(Fact::decode(&other_total), Err(BlobError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn a_fact_survives_its_bytes(
            epoch in 1u64..=64, as_of in 0u64..1 << 44, generation: u64, total: i64,
        ) {
            let epoch = Epoch::new(epoch).unwrap();
            let members = Members::None;
            let fact = Fact { epoch, as_of: AsOf(as_of), generation, total, members };
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
