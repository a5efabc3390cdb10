//! From records to facts: a pure engine per partition, and the runner around it.
//!
//! [`engine`] folds and knows no clock, no I/O and no async; [`run`] reads the log, feeds the
//! engines, and carries out what they ask for.

pub mod engine;
mod metrics;
mod owned;
mod poller;
mod progress;
mod runner;
mod settings;
mod tasks;

pub use runner::{Context, run};
pub use settings::{AggregatorSettings, BadPartitions, FlushSettings, parse_partitions};
