//! Places in the log: partition, offset, as-of, epoch, and the stamp that orders facts.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{MAX_EPOCH, MAX_OFFSET};

/// A partition of the log, and so a shard of a counter.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Partition(pub u32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of one record in its partition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The as-of of a fold whose last record is this one. Offsets are far below `u64::MAX`.
    pub fn as_of(self) -> AsOf {
        AsOf(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The next offset to apply; exclusive: every record below it is taken in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct AsOf(pub u64);

impl AsOf {
    /// Before the first record.
    pub const ZERO: AsOf = AsOf(0);

    /// Whether the record at `offset` is taken in.
    pub fn covers(self, offset: Offset) -> bool {
        offset.0 < self.0
    }

    /// The offset of the record that is applied next.
    pub fn next(self) -> Offset {
        Offset(self.0)
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The generation of the log, 1 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Epoch(u8);

impl Epoch {
    /// The epoch of a new log.
    pub const FIRST: Epoch = Epoch(1);

    /// An epoch from its number.
    pub fn new(number: u64) -> Result<Self, PositionError> {
        match u8::try_from(number) {
            Ok(number @ 1..=MAX_EPOCH) => Ok(Epoch(number)),
            _ => Err(PositionError::Epoch(number)),
        }
    }

    /// Its number, 1 to 64.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lane of fact rows: a poisoned row is abandoned and its partition goes on in the next lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lane(pub u8);

/// The write timestamp of a fact: `epoch << 44 | as_of`. The store keeps the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(i64);

impl Stamp {
    /// The stamp of an as-of in an epoch; refused past 44 bits of offset.
    pub fn new(epoch: Epoch, as_of: AsOf) -> Result<Self, PositionError> {
        if as_of.0 > MAX_OFFSET {
            return Err(PositionError::Offset(as_of.0));
        }
        let low = i64::try_from(as_of.0).map_err(|_| PositionError::Offset(as_of.0))?;
        // At most 64 << 44 = 2^50: the shift loses nothing.
        Ok(Stamp((i64::from(epoch.0) << 44) | low))
    }

    /// The epoch in it.
    pub fn epoch(self) -> Epoch {
        Epoch(u8::try_from(self.0 >> 44).unwrap_or(MAX_EPOCH))
    }

    /// The as-of in it.
    pub fn as_of(self) -> AsOf {
        AsOf(self.0.cast_unsigned() & MAX_OFFSET)
    }

    /// The stamp as the store keeps it; never zero, since epochs begin at 1.
    pub fn raw(self) -> i64 {
        self.0
    }
}

/// A place that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PositionError {
    /// An epoch outside 1..=64.
    #[error("epoch {0} is not between 1 and {MAX_EPOCH}")]
    Epoch(u64),
    /// An offset past 44 bits.
    #[error("offset {0} is past 44 bits")]
    Offset(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_outranks_every_offset_of_an_earlier_one() {
        let last = Stamp::new(Epoch::FIRST, AsOf(MAX_OFFSET)).unwrap();
        let next = Stamp::new(Epoch::new(2).unwrap(), AsOf(0)).unwrap();
        assert!(next > last);
        assert_eq!(Stamp::new(Epoch::FIRST, AsOf(5)).unwrap().raw(), (1 << 44) | 5);
    }

    #[test]
    fn a_stamp_names_its_epoch_and_as_of() {
        let stamp = Stamp::new(Epoch::new(64).unwrap(), AsOf(MAX_OFFSET)).unwrap();
        assert_eq!((stamp.epoch().number(), stamp.as_of()), (64, AsOf(MAX_OFFSET)));
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        assert_eq!(Epoch::new(0), Err(PositionError::Epoch(0)));
        assert_eq!(Epoch::new(65), Err(PositionError::Epoch(65)));
        assert!(Stamp::new(Epoch::FIRST, AsOf(1 << 44)).is_err());
    }
}
