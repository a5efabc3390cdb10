//! Totals out: reduce, cache, HTTP.
//!
//! [`reduce`](reduce()) is pure; [`Reader`] keeps answers fresh; [`router`] is its HTTP side.

mod cache;
mod http;
mod members;
mod metrics;
mod reader;
mod reduce;
mod settings;
mod watermark;

pub use http::router;
pub use reader::{Context, ReadError, Reader};
pub use reduce::{Reduced, reduce};
pub use settings::ReaderSettings;
