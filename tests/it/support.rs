//! What the tests stand on: servers, processes, and the truth to compare with.

mod load;
mod process;
mod servers;
mod site;

pub(crate) use load::{Load, unix_ms};
pub(crate) use process::Process;
pub(crate) use servers::{Outage, Servers, servers};
pub(crate) use site::Site;

use std::path::PathBuf;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
