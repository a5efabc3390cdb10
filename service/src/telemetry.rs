//! Logs: for people on a terminal, JSON elsewhere; always on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. `filter` is a tracing filter such as `info,tally_log=debug`.
pub fn start(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("{error}"))
}
