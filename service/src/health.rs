//! Health: what of a process is ready, and why the rest is not.

use std::collections::BTreeMap;
use std::fmt::Display;
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
        let mut parts = self.0.lock();
        if matches!(parts.get(part), Some(Ok(()))) {
            return false; // asked with every record: nothing to allocate
        }
        matches!(parts.insert(part.to_owned(), Ok(())), Some(Err(_)))
    }

    /// The part cannot do its work, and why. Says whether that is news.
    pub fn not_ready(&self, part: &str, why: impl Into<String>) -> bool {
        let old = self.0.lock().insert(part.to_owned(), Err(why.into()));
        !matches!(old, Some(Err(_)))
    }

    /// Takes in how a part answered; logs once when it goes away, and once when it is back.
    pub fn report<E: Display>(&self, part: &str, error: Option<&E>) {
        match error {
            Some(error) if self.not_ready(part, error.to_string()) => {
                tracing::warn!(part, %error, "waiting for the {part}, and trying again");
            }
            Some(_) => {}
            None if self.ready(part) => tracing::info!(part, "the {part} answers again"),
            None => {}
        }
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
