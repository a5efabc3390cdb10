//! The seeded simulator: the real ingest, aggregator and reader on a simulated log, store, clock
//! and network.
//!
//! A seed decides everything: how large the world is, who writes what, which messages are lost or
//! late, who crashes when. [`run`] lives through it in simulated time and says what was wrong.
//! The oracle judges every write that is sent: a fact must be a true sentence about the log.
#![allow(clippy::disallowed_methods)] // tokio's time is the simulated one

mod clock;
mod dice;
mod log;
pub mod mutants;
mod oracle;
mod plan;
mod process;
mod producers;
mod readers;
pub mod search;
mod store;
mod truth;
mod world;

pub use world::{Outcome, run};
