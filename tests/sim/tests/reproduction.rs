//! Seeds that once showed something. What they showed is a mutant now, so that the search keeps
//! looking for it; the seeds are run because they were hard on the code.

use tally_sim::run;

/// Seed, and what it showed.
const FOUND: &[(u64, &str)] = &[
    (2, "a fold that paused because memory was full never found room again"),
    (1_727, "a gap that was heard twice was taken for a hole, and a record was lost"),
    (2_827, "a record that the consumer did not deliver, with none after it, was never asked for"),
    (249, "an event that overflowed left no dead letter: a fact that covers it stood before"),
    (1_186, "an owner without a checkpoint counted a new log on top of another owner's facts"),
    (5_282, "the same, after a silence"),
    (10_024_436, "a checkpoint that was only read, from one replica, was taken for acknowledged"),
    (10_009_063, "an owner that froze while it was opened counted what replaced the log meanwhile"),
    (10_204_380, "the same, while it compared the log with what it knew"),
    (20_003_152, "a tail whose beginning retention had taken was called empty, and so caught up"),
    (
        300_068_759,
        "records that the consumer left out were never asked for while a window was read",
    ),
    (300_113_993, "the same"),
];

#[test]
fn what_was_found_stays_found() {
    for (seed, what) in FOUND {
        assert_eq!(run(*seed, None).wrong, None, "seed {seed} showed: {what}");
    }
}
