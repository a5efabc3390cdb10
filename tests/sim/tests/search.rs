//! The search that every check runs: fixed seeds, fresh seeds, and every mutant.

use std::time::{SystemTime, UNIX_EPOCH};

use tally_sim::mutants::{CANARY, MUTANTS};
use tally_sim::run;
use tally_sim::search::search;

/// Seeds of each kind.
const SEEDS: u64 = 10_000;

/// Every mutant must be noticed within so many.
const NOTICED_WITHIN: u64 = 20_000;

fn must_be_right(first: u64) {
    let searched = search(first..first + SEEDS, None, false, || {});
    println!("{SEEDS} seeds from {first}: {} writes judged", searched.writes);
    let wrong: Vec<String> =
        searched.findings.iter().map(|f| format!("seed {}: {}", f.seed, f.wrong)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(searched.writes > SEEDS * 50, "who writes so little shows nothing");
}

#[test]
fn fixed_seeds_are_right() {
    must_be_right(0);
}

#[test]
#[allow(clippy::disallowed_methods)] // other seeds with every run
fn fresh_seeds_are_right() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    must_be_right(now * 1_000);
}

#[test]
fn every_mutant_is_noticed() {
    for mutant in MUTANTS {
        let searched = search(0..NOTICED_WITHIN, Some(mutant.name), true, || {});
        let found = searched.findings.first();
        let found = found.unwrap_or_else(|| panic!("nobody notices {}", mutant.name));
        println!("{}: seed {}: {}", mutant.name, found.seed, found.wrong);
    }
}

#[test]
fn the_canary_dies_at_once() {
    assert!(run(1, Some(CANARY)).wrong.is_some());
}

#[test]
fn a_seed_is_the_same_run_again() {
    for seed in 0..50 {
        assert_eq!(run(seed, None), run(seed, None));
    }
}
