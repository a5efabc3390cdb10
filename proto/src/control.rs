//! Control records: what changes how a partition folds, in the log among the events.

use bytes::Bytes;
use prost::Message;

use crate::counter::CounterId;
use crate::position::{AsOf, Epoch, PositionError, Stamp};
use crate::record::RecordError;
use crate::wire;

/// A counter begins anew: what stands before this record in its partition counts no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// Which counter.
    pub counter: CounterId,
    /// The counter's generation from here on, the same in every partition: the place of the reset's
    /// first record, which says nothing, in the partition of the counter's slot 0.
    pub generation: Option<u64>,
}

impl Reset {
    /// The generation of a reset that begins with the record before `as_of`: it rises for ever.
    pub fn generation_at(epoch: Epoch, as_of: AsOf) -> Result<u64, PositionError> {
        Ok(Stamp::new(epoch, as_of)?.raw().unsigned_abs())
    }

    /// The value of its record.
    pub fn encode(&self) -> Bytes {
        let bytes = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        let reset = wire::Reset {
            namespace: bytes(&self.counter.subject.namespace),
            kind: bytes(&self.counter.kind),
            subject: bytes(&self.counter.subject.subject),
            generation: self.generation.unwrap_or(0),
        };
        let change = Some(wire::control::Change::Reset(reset));
        wire::Control { change }.encode_to_vec().into()
    }

    /// The reset of a record's value. A change that this build does not know is a newer build's.
    pub fn decode(value: Bytes) -> Result<Self, RecordError> {
        let damaged = |why: &dyn ToString| RecordError::Damaged(why.to_string());
        let wire = wire::Control::decode(value).map_err(|error| damaged(&error))?;
        let Some(wire::control::Change::Reset(reset)) = wire.change else {
            return Err(RecordError::UnknownContentType);
        };
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let (namespace, kind) = (text(&reset.namespace), text(&reset.kind));
        let counter = CounterId::new(&namespace, &kind, &text(&reset.subject));
        Ok(Reset {
            counter: counter.map_err(|error| damaged(&error))?,
            generation: Some(reset.generation).filter(|generation| *generation > 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reset_survives_its_bytes() {
        let counter = CounterId::new("default", "view", "a").unwrap();
        let first = Reset { counter, generation: None };
        let golden = b"\x0a\x12\x0a\x07default\x12\x04view\x1a\x01a";
        assert_eq!(first.encode().as_ref(), golden);
        let next = Reset { generation: Some(1 << 44 | 7), ..first.clone() };
        for reset in [first, next] {
            assert_eq!(Reset::decode(reset.encode()), Ok(reset));
        }
    }

    #[test]
    fn a_change_that_is_not_known_is_a_newer_builds() {
        let unknown = Bytes::from_static(&[0x12, 0x00]);
        assert_eq!(Reset::decode(unknown), Err(RecordError::UnknownContentType));
        assert_eq!(Reset::decode(Bytes::new()), Err(RecordError::UnknownContentType));
        let nameless = Bytes::from_static(&[0x0a, 0x00]);
        assert!(matches!(Reset::decode(nameless), Err(RecordError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_reset_or_an_error(bytes: Vec<u8>) {
            let _ = Reset::decode(bytes.into());
        }
    }
}
