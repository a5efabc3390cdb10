//! Kinds: what is counted, and how.

use serde::Serialize;

use crate::retry::RetryWindow;

/// How events of a kind become a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The sum of deltas.
    Tally,
    /// The number of actors that are in.
    Set,
}

/// Which of its slots a plain delta of a hot counter takes. Anybody may choose: it changes no total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardChoice {
    /// Any.
    Random,
    /// One after the other.
    RoundRobin,
    /// One whose partition has less waiting, and had less lately.
    LeastLoaded,
    /// By the actor, if one is named.
    UserHash,
    /// By the second.
    Time,
}

/// One declared kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// Its name, such as `view`.
    pub name: Box<str>,
    /// How its events become a total.
    pub mode: Mode,
    /// Over how many slots its stateful events are dealt, by their actor or id. Fixed for life: an
    /// actor's events, and an id's repeats, must always meet in one partition.
    pub spread: u32,
    /// Which slot a plain delta takes, when its counter has more than one.
    pub shard_choice: ShardChoice,
    /// The most actors that a fact lists; the record that brings more makes it spill to the ledger.
    pub most_inline: usize,
}

/// The kinds that a fold knows. Part of the fold: never taken from a process's configuration.
#[derive(Debug, Clone)]
pub struct Kinds {
    kinds: Vec<Kind>,
    retry_window: RetryWindow,
}

impl Kinds {
    /// These kinds, whose events' ids are remembered so long.
    pub fn new(kinds: Vec<Kind>, retry_window: RetryWindow) -> Self {
        Kinds { kinds, retry_window }
    }

    /// `view` and `reply` (tally), `like` and `repost` (set).
    pub fn built_in() -> Self {
        let kinds = [
            ("view", Mode::Tally),
            ("reply", Mode::Tally),
            ("like", Mode::Set),
            ("repost", Mode::Set),
        ];
        let kind = |(name, mode): (&str, Mode)| Kind {
            name: name.into(),
            mode,
            spread: 8,
            shard_choice: ShardChoice::LeastLoaded,
            most_inline: 64,
        };
        Kinds::new(kinds.into_iter().map(kind).collect(), RetryWindow::BUILT_IN)
    }

    /// For how long an event's id tells its repeats from new events.
    pub fn retry_window(&self) -> RetryWindow {
        self.retry_window
    }

    /// The kind of that name, if it is declared. Kinds are few: a search in line is the fastest.
    pub fn get(&self, name: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| &*kind.name == name)
    }
}
