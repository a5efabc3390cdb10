//! Benches, each against a bare limit that is measured in the same run, on the same input.
//!
//! `cargo run --release -p tally-bench` runs all that need no servers, in about two minutes, and
//! prints a table; `cargo run --release -p tally-bench -- fold` those whose name contains the word.
//! Those on Kafka run when they are named: `-- kafka`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod client;
mod fold;
mod input;
mod kafka;
mod retired;
mod retries;
mod server;

use std::time::Duration;

/// One line of the table: what was reached, the limit beside it, and what is wanted.
struct Line {
    name: &'static str,
    reached: String,
    limit: String,
    ratio: f64,
    wanted: f64,
}

/// A bench by its name.
type Bench = (&'static str, fn() -> Line);

fn main() {
    if std::env::args().nth(1).as_deref() == Some(server::TALLY) {
        std::process::exit(i32::from(tally::main() != std::process::ExitCode::SUCCESS));
    }
    if std::env::args().nth(1).as_deref() == Some(server::BARE) {
        return server::bare();
    }
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let benches: [Bench; 16] = [
        ("fold-packed", fold::packed),
        ("fold-json", fold::json),
        ("memory", fold::memory),
        ("retry-window", retries::memory),
        ("retry-refill", retries::refill),
        ("ingest-single", server::ingest_single),
        ("ingest-cpu", server::ingest_single_cpu),
        ("ingest-ndjson", server::ingest_ndjson),
        ("ingest-ids-single", server::ingest_single_ids),
        ("ingest-ids-ndjson", server::ingest_ids),
        ("read-cached", server::read_cached),
        ("retired", retired::read_retired),
        ("kafka-json", kafka::json),
        ("kafka-packed", kafka::packed),
        ("kafka-streams", kafka::streams),
        ("kafka-ingest", server::kafka_ingest_single),
    ];
    println!("{:<34} {:>28} {:>28} {:>7} {:>7}", "", "reached", "limit", "ratio", "wanted");
    for (_, bench) in benches.into_iter().filter(|(name, _)| is_wanted(name, &wanted)) {
        let line = bench();
        println!(
            "{:<34} {:>28} {:>28} {:>7.2} {:>7.2}",
            line.name, line.reached, line.limit, line.ratio, line.wanted
        );
    }
}

/// The best of some runs: noise only ever slows down.
fn best(runs: usize, mut run: impl FnMut() -> Duration) -> Duration {
    (0..runs).map(|_| run()).min().unwrap()
}

fn is_wanted(name: &str, wanted: &str) -> bool {
    name.contains(wanted) && (wanted.contains("kafka") || !name.contains("kafka"))
}

/// Processor time that a process has used.
fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
