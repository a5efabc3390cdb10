//! An all-in-one process that is killed again and again, and always comes back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Process;

/// A process that lives again after each kill -9.
pub(crate) struct Mortal {
    pub(crate) process: Process,
    /// Where it serves at present; whoever sends asks here each time.
    pub(crate) url: Arc<Mutex<String>>,
    settings: BTreeMap<String, String>,
}

impl Mortal {
    pub(crate) async fn start(settings: BTreeMap<String, String>) -> Self {
        let process = Process::start(&["serve"], &settings).await;
        let url = Arc::new(Mutex::new(process.url.clone()));
        Mortal { process, url, settings }
    }

    /// Waits for a task, kills the process every so often meanwhile, and once when it is done.
    pub(crate) async fn live_through(&mut self, task: impl Future<Output = ()>, every: Duration) {
        let mut task = std::pin::pin!(task);
        for deaths in 0.. {
            if tokio::time::timeout(every, &mut task).await.is_ok() {
                break;
            }
            assert!(deaths < 200, "it never ends");
            self.die().await;
        }
        self.die().await;
    }

    async fn die(&mut self) {
        self.process.die();
        self.process = Process::start(&["serve"], &self.settings).await;
        self.url.lock().unwrap().clone_from(&self.process.url);
    }
}
