//! What the tests stand on: servers, processes, and the truth to compare with.

mod http;
mod load;
mod mortal;
mod process;
mod servers;
mod site;

pub(crate) use http::{get, post_until_answered, unix_ms, wait_until};
pub(crate) use load::Load;
pub(crate) use mortal::Mortal;
pub(crate) use process::Process;
pub(crate) use servers::{Outage, Servers, servers};
pub(crate) use site::Site;

use std::path::PathBuf;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
