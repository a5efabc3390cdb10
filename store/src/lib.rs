//! The store: one port, three adapters.
//!
//! [`FactStore`] is the port, with its contract; `contract` is the suite that every
//! adapter runs (feature `contract`).

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod cql;
pub mod embedded;
mod memory;
mod port;
mod rows;

pub use memory::MemoryStore;
pub use port::{FactStore, StoreError};
pub use rows::{Created, DeadLetter, FactRow, LedgerRow, Progress, day_of};
