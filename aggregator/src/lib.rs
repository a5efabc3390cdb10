//! From records to facts: a pure engine per partition, and the runner around it.
//!
//! [`engine`] folds and knows no clock, no I/O and no async; [`run`] reads the log, feeds the
//! engines, and carries out what they ask for. What an operator does when log or store were changed
//! by hand is in [`epoch`] and [`lane`].

pub mod engine;
pub mod epoch;
pub mod lane;
mod metrics;
mod owned;
mod poller;
mod progress;
mod recognise;
mod runner;
mod settings;
mod tasks;

pub use runner::{Context, run};
pub use settings::{AggregatorSettings, BadPartitions, FlushSettings, parse_partitions};
