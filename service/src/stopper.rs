//! Stopping: one signal for a whole process, and a way to wait for what still runs.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock;

/// Tells tasks to stop, and waits for them. Clones share one signal.
#[derive(Debug, Clone, Default)]
pub struct Stopper {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Stopper {
    /// A stopper that nobody has pulled.
    pub fn new() -> Self {
        Stopper::default()
    }

    /// Tells everyone to stop.
    pub fn stop(&self) {
        self.token.cancel();
    }

    /// Whether everyone was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Ready once everyone was told to stop.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    /// The signal, for libraries that take one.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs a task that [`Stopper::finished`] waits for.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task);
    }

    /// Waits for all spawned tasks, at most `deadline`; says whether all have ended.
    pub async fn finished(&self, deadline: Duration) -> bool {
        self.tasks.close();
        clock::timeout(deadline, self.tasks.wait()).await.is_ok()
    }
}
