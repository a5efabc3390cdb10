//! Events in: check, route, batch, append.
//!
//! [`Ingest`] is the way of an event into the log; [`router`] is its HTTP side.

mod accumulator;
mod budget;
mod http;
mod ingest;
mod metrics;
mod predict;
mod queue;
mod settings;
mod spread;

pub use accumulator::Accumulator;
pub use http::router;
pub use ingest::{Context, Ingest, IngestError, Receipt};
pub use settings::IngestSettings;
