//! The retry window: for how long an event's id tells its repeats from new events.

use blake3::Hasher;

/// How many ids a partition remembers, and for how long. Part of the fold: one value for the life
/// of a log, so that every owner of a partition takes the same events for repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryWindow {
    /// The newest ids of a partition, counted or not: those are remembered.
    pub ids: usize,
    /// The most milliseconds between the append times of an event and of its repeat. A log keeps
    /// its records for twice as long, at least.
    pub span_ms: i64,
}

impl RetryWindow {
    /// Of every log: 131,072 ids a partition (about 6 MB), and an hour.
    pub const BUILT_IN: RetryWindow = RetryWindow { ids: 131_072, span_ms: 3_600_000 };

    /// How long a log must keep a record, at least: a restarted owner reads the window again.
    pub const fn least_retention_ms(self) -> i64 {
        self.span_ms.saturating_mul(2)
    }
}

/// What a window remembers of an id: 128 bits of BLAKE3 over the id and its counter, since the same
/// id may be used once on each. Strong, because whoever may choose ids must not be able to choose
/// one that makes another's event look like a repeat.
pub fn id_hash(namespace: &str, kind: &str, subject: &str, id: &str) -> u128 {
    let hash = hash_of([namespace, kind, subject, id]);
    u128::from_le_bytes(hash)
}

/// The id of a CloudEvent: its `source` with its `id` is unique, but neither is a name.
pub fn cloud_event_id(source: &str, id: &str) -> String {
    let length = source.len().to_string();
    format!("ce:{:032x}", u128::from_be_bytes(hash_of([&length, source, id])))
}

/// The first half of the hash of texts; no name holds a slash.
fn hash_of<const N: usize>(texts: [&str; N]) -> [u8; 16] {
    let mut hasher = Hasher::new();
    for text in texts {
        hasher.update(text.as_bytes());
        hasher.update(b"/");
    }
    let mut half = [0; 16];
    hasher.finalize_xof().fill(&mut half);
    half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::check_name;

    #[test]
    fn an_id_is_remembered_by_counter() {
        let hash = id_hash("default", "view", "video:1", "7");
        assert_eq!(hash, id_hash("default", "view", "video:1", "7"));
        for other in [
            id_hash("eu", "view", "video:1", "7"),
            id_hash("default", "reply", "video:1", "7"),
            id_hash("default", "view", "video:17", ""),
            id_hash("default", "view", "video:1", "8"),
        ] {
            assert_ne!(hash, other);
        }
    }

    #[test]
    fn a_cloud_event_has_an_id_that_is_a_name_and_never_changes() {
        let id = cloud_event_id("/app/é", "7 of 9");
        assert!(check_name(&id).is_ok());
        assert_ne!(id, cloud_event_id("/app", "/é7 of 9"));
        assert_ne!(cloud_event_id("a", "b/c"), cloud_event_id("a/b", "c"));
        assert_eq!(cloud_event_id("/app", "7"), "ce:2ea6bb2c49dad8fb485bfa1c84e52f5c");
    }
}
