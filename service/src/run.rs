//! One process is one `run`: signals in, an exit code out.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::stopper::Stopper;

/// How long a process may take to stop after the first signal.
pub const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Runs `main` until it ends by itself or a signal stops it. The first signal asks, the second
/// ends at once; what was not finished by then is replayed, as after any crash.
pub fn run<F, Fut>(main: F) -> ExitCode
where
    F: FnOnce(Stopper) -> Fut,
    Fut: Future<Output = ExitCode>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tally: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        let stopper = Stopper::new();
        let signals = watch_signals(stopper.clone());
        tokio::select! {
            code = main(stopper.clone()) => code,
            code = signals => code,
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// Ends the process at the second signal, or when the deadline after the first runs out.
async fn watch_signals(stopper: Stopper) -> ExitCode {
    let (mut terminate, mut interrupt) =
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            _ => return std::future::pending().await,
        };
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    tracing::info!("stopping; a second signal ends at once");
    stopper.stop();
    tokio::select! {
        _ = terminate.recv() => tracing::warn!("ended at once by a second signal"),
        _ = interrupt.recv() => tracing::warn!("ended at once by a second signal"),
        () = crate::clock::sleep(STOP_DEADLINE) => tracing::warn!("could not stop in time"),
    }
    ExitCode::FAILURE
}
