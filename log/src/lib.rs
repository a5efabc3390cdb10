//! The log: one port, three adapters.
//!
//! [`EventLog`] and [`LogConsumer`] are the port, with their contract; `contract` is the suite that
//! every adapter runs (feature `contract`).

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod embedded;
pub mod kafka;
mod memory;
mod port;

pub use memory::MemoryLog;
pub use port::{
    AppendError, Bounds, Consume, EventLog, Found, LogConsumer, LogError, NewRecord, Polled,
    Record, RecordBatch,
};
