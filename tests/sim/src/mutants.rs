//! The mutants: each takes one rule of the design away. The search must notice every one of them.

/// A rule, and the mutant that breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// The switch in the code.
    pub name: &'static str,
    /// The axiom or promise that the rule keeps.
    pub axiom: &'static str,
    /// What the rule says.
    pub rule: &'static str,
}

const fn mutant(name: &'static str, axiom: &'static str, rule: &'static str) -> Mutant {
    Mutant { name, axiom, rule }
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    mutant("no-fingerprint", "F1", "on resume the last record is compared before any is counted"),
    mutant(
        "no-doubt",
        "F1",
        "after a silence or an error the log is recognised before any is counted",
    ),
    mutant(
        "own-record-only",
        "F1",
        "another owner's newer checkpoint is compared with the log too",
    ),
    mutant("no-freeze", "F1", "a move to the next epoch freezes the checkpoints first"),
    mutant("lazy-rebase", "F1", "it writes every row again before anyone counts on"),
    mutant("late-epoch", "F1", "what a late writer of a closed epoch says is no base"),
    mutant(
        "kinds-by-process",
        "F2",
        "what changes the fold is never a process's own configuration",
    ),
    mutant("read-one", "F3", "a base is read with a quorum"),
    mutant("write-one", "F3", "a write is acked by a quorum"),
    mutant("ack-before-sync", "F3", "the store syncs before it acks"),
    mutant(
        "checkpoint-first",
        "F3",
        "a checkpoint is written when every row of its flush is acked",
    ),
    mutant(
        "checkpoint-passes-loads",
        "F3",
        "no checkpoint passes an event that waits for its base",
    ),
    mutant("failed-is-written", "F3", "a flush that failed is written again"),
    mutant("landed-is-clean", "F3", "a row that changed while it was written is dirty still"),
    mutant("evict-dirty", "F3", "a dirty row is not evicted"),
    mutant("evict-flying", "F3", "a row whose write is not acked is not evicted"),
    mutant("no-write-back", "F3", "a base newer than the checkpoint at start is written again"),
    mutant("error-is-absent", "F3", "an error is never 'there is no base'"),
    mutant("misrouted-is-counted", "F4", "an actor's events meet in one partition"),
    mutant(
        "spills-after-facts",
        "sets",
        "who is in at the spill is in the ledger before the fact is",
    ),
    mutant("forget-spills", "sets", "the list of the spill stays until a spilled fact is acked"),
    mutant("entries-before-facts", "sets", "an entry is written after a fact that is as new"),
    mutant(
        "spill-without-name",
        "sets",
        "a spilled fact names its spill: what is older is void, and touches nothing",
    ),
    mutant(
        "dirty-by-total",
        "sets",
        "a fact is dirty when a member changed, also at an equal total",
    ),
    mutant("no-reread", "sets", "when an entry is newer than the event, the fact is read again"),
    mutant("no-entry-write-back", "sets", "an entry newer than the checkpoint is written again"),
    mutant("evict-dirty-entries", "sets", "a dirty entry is not evicted"),
    mutant("entry-as-of-flush", "sets", "an entry is as of its actor's last change"),
    mutant("window-is-lost", "retries", "a fold that resumes reads the window's ids again"),
    mutant(
        "window-of-counted",
        "retries",
        "a repeat is an id that occurred among the newest, counted or not",
    ),
    mutant("window-by-process", "retries", "the window is the log's, never a process's own"),
    mutant("window-grows", "retries", "it holds so many ids, and no more"),
    mutant("window-without-span", "retries", "ids too far apart in time never match"),
    mutant("reset-stays-home", "resets", "the fold carries a reset to every other partition"),
    mutant("reset-keeps-members", "resets", "a set that begins anew has nobody in"),
    mutant("reset-once-more", "resets", "a reset that is not newer changes nothing"),
    mutant("replay-counts-again", "F5", "a record below the expected offset is left out"),
    mutant("skip-gaps", "F5", "at a gap the log is asked once more"),
    mutant(
        "hole-heard-twice",
        "F5",
        "a hole is believed when the log says so, not when a gap is heard twice",
    ),
    mutant(
        "count-what-the-base-holds",
        "F5",
        "a record is applied only if it is not below the row's as-of",
    ),
    mutant("as-of-inclusive", "F5", "an as-of is exclusive"),
    mutant("wall-clock-stamps", "stamp", "facts are ordered by offset, not by a clock"),
    mutant("clamp-partials", "total", "a partial may be negative"),
    mutant("overflow-wraps", "total", "an overflow is a dead letter, never a wrap"),
    mutant("dead-letters-beside-facts", "poison", "a fact is written after its dead letters"),
    mutant("dead-letters-once", "poison", "dead letters of a flush that failed are written again"),
    mutant("full-stays-full", "memory", "a fold that is paused because memory is full finds room"),
    mutant("answer-before-the-log", "ingest", "success is answered when the log has the event"),
    mutant("retry-in-doubt", "ingest", "a record in doubt is not appended again"),
    mutant(
        "caught-up-unseen",
        "as-of",
        "a partition is caught up when all that was there is durable",
    ),
    mutant("watermark-after-read", "as-of", "the watermark is taken before the facts are read"),
];

/// Not a rule but a plain mistake, in every fact: whatever finds nothing here is not alive.
pub const CANARY: &str = "canary";
