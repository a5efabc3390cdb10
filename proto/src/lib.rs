//! The words of Tally: counters, events, facts and their bytes. No I/O, no clock, no tokio.
//!
//! Every decoder here is total: any bytes give a value or a typed error, and what it allocates is
//! linear in the length of its input.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing
    )
)]

pub mod api;
mod batch;
mod blob;
mod checkpoint;
mod control;
mod counter;
mod display;
mod event;
mod fact;
mod fingerprint;
mod kind;
mod layout;
mod ledger;
pub mod limits;
mod name;
mod position;
mod record;
mod retry;
mod route;
mod time;
mod token;

pub use batch::{Act, BatchBuilder, Entry, EventBatch, Full, Scope};
pub use blob::BlobError;
pub use checkpoint::Checkpoint;
pub use control::Reset;
pub use counter::{CounterId, SubjectId};
pub use display::compact;
pub use event::{Action, Event, EventError, RawEvent};
pub use fact::{Fact, Members};
pub use fingerprint::Fingerprint;
pub use kind::{Kind, Kinds, Mode, ShardChoice};
pub use layout::Layout;
pub use ledger::LedgerEntry;
pub use name::{DEFAULT_NAMESPACE, NameError, check_name};
pub use position::{AsOf, Epoch, Lane, Offset, Partition, PositionError, Stamp};
pub use record::{CONTENT_TYPE_HEADER, ContentType, Decoded, RecordError, decode_record};
pub use retry::{RetryWindow, cloud_event_id, id_hash};
pub use route::{murmur2, partition_of, route, route_key, slot_of};
pub use time::{parse_rfc3339, rfc3339};
pub use token::{Token, TokenError};

/// The generated Protobuf messages; nothing outside this crate names them.
mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::restriction)]
    include!(concat!(env!("OUT_DIR"), "/tally.v1.rs"));
}
