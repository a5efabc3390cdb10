//! The prediction: how many shards a counter will need, from what is known before anybody counts.
//!
//! Spread follows the load within half a second anyway, so a prediction only spares the first burst
//! that half second. It asks how many events the busiest second will bring to one ingest:
//!
//! * of the followers, one in twenty acts within the first minute (a post lives by its beginning);
//! * what is trending reaches people who do not follow: ten times as many;
//! * what is unlisted or private is seen by a tenth of them, at most;
//! * the busiest second has twice the mean of its minute.
//!
//! One shard takes `slot_rate` events a second, and the shards are a power of two, as spread is.

use serde::Deserialize;

/// What somebody who creates a counter may know.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hints {
    /// Who will hear of it.
    #[serde(default)]
    pub(crate) followers: u64,
    /// Who may see it.
    #[serde(default)]
    pub(crate) visibility: Visibility,
    /// Whether it is shown to people who do not follow.
    #[serde(default)]
    pub(crate) trending: bool,
}

/// Who may see a subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Visibility {
    #[default]
    Public,
    Unlisted,
    Private,
}

/// How many shards to begin with; the least of them is 1, the most are the partitions.
pub(crate) fn shards(hints: Hints, slot_rate: u64, partitions: u32) -> u32 {
    const ACT_IN: u64 = 20;
    const SECONDS: u64 = 60;
    const PEAK: u64 = 2;
    let reach = match (hints.visibility, hints.trending) {
        (Visibility::Public, true) => hints.followers.saturating_mul(10),
        (Visibility::Public, false) => hints.followers,
        (Visibility::Unlisted | Visibility::Private, _) => hints.followers / 10,
    };
    let peak = (reach / ACT_IN / SECONDS).saturating_mul(PEAK);
    let shards = u32::try_from(peak.div_ceil(slot_rate.max(1))).unwrap_or(u32::MAX / 2);
    shards.max(1).next_power_of_two().min(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_follows_the_table_of_the_manual() {
        let manual = include_str!("../../docs/operating.md");
        for (followers, visibility, trending, expected) in [
            (1_000, Visibility::Public, false, 1),
            (12_000_000, Visibility::Public, false, 2),
            (12_000_000, Visibility::Public, true, 32),
            (12_000_000, Visibility::Private, true, 1),
            (300_000_000, Visibility::Public, true, 64),
        ] {
            let hints = Hints { followers, visibility, trending };
            assert_eq!(shards(hints, 10_000, 64), expected, "{hints:?}");
            let of = format!("{visibility:?}").to_lowercase();
            let row = format!("| {followers} | {of} | {trending} | {expected} |");
            assert!(manual.contains(&row), "the manual lacks {row}");
        }
    }
}
