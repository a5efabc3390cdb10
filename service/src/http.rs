//! The HTTP edge: an accept loop with timeouts, and problems as RFC 9457 tells them.

mod problem;
mod server;

pub use problem::Problem;
pub use server::{HttpLimits, Listening, bind, serve};
