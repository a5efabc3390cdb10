//! Health: what of a process is ready, and why the rest is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The state of each part of a process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, Result<(), String>>>>);

impl Health {
    /// A part that is not ready until it says so.
    pub fn starting(&self, part: &str) {
        self.not_ready(part, "starting");
    }

    /// The part does its work. Says whether that is news.
    pub fn ready(&self, part: &str) -> bool {
        let old = self.0.lock().insert(part.to_owned(), Ok(()));
        matches!(old, Some(Err(_)))
    }

    /// The part cannot do its work, and why. Says whether that is news.
    pub fn not_ready(&self, part: &str, why: impl Into<String>) -> bool {
        let old = self.0.lock().insert(part.to_owned(), Err(why.into()));
        !matches!(old, Some(Err(_)))
    }

    /// The part is gone, and no longer counts.
    pub fn forget(&self, part: &str) {
        self.0.lock().remove(part);
    }

    /// What is not ready, by part.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let parts = self.0.lock();
        let problem = |(part, state): (&String, &Result<(), String>)| {
            state.as_ref().err().map(|why| (part.clone(), why.clone()))
        };
        parts.iter().filter_map(problem).collect()
    }
}
