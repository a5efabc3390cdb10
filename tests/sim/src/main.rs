//! `tally-sim`: runs seeds of the simulator, as many as you have time for.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tally_sim::mutants::{MUTANTS, Mutant};
use tally_sim::search::{Searched, search};

/// Searches for a run in which something is counted wrongly.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
    tally-sim --seeds 300000            a long search\n  \
    tally-sim --first 4711 --seeds 1    one seed again\n  \
    tally-sim --mutants                 how soon each mutant is noticed"
)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run with a rule taken away.
    #[arg(long)]
    mutant: Option<String>,
    /// Tell what happens; for one seed.
    #[arg(long)]
    story: bool,
    /// Run every mutant until it is noticed, and print the table of docs/proof.md.
    #[arg(long)]
    mutants: bool,
}

#[allow(clippy::disallowed_methods)] // the time that the search itself takes
fn main() -> ExitCode {
    let args = Args::parse();
    if args.story {
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time().init();
    }
    if args.mutants {
        return table(args.seeds);
    }
    let mutant = match args.mutant.as_deref().map(named) {
        Some(None) => {
            let names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
            eprintln!("there is no such mutant; there are: {}", names.join(", "));
            return ExitCode::from(2);
        }
        named => named.flatten().map(|mutant| mutant.name),
    };
    let started = Instant::now();
    let searched = searched(&args, mutant);
    for finding in searched.findings.iter().take(20) {
        println!("seed {}: {}", finding.seed, finding.wrong);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} seeds from {} in {seconds:.1} s, {} writes judged, {} wrong",
        searched.seeds,
        args.first,
        searched.writes,
        searched.findings.len()
    );
    if searched.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn named(name: &str) -> Option<&'static Mutant> {
    MUTANTS.iter().find(|mutant| mutant.name == name)
}

fn searched(args: &Args, mutant: Option<&'static str>) -> Searched {
    let bar = ProgressBar::new(args.seeds); // hidden where there is no terminal
    let style = "{elapsed_precise} {bar:30} {pos} of {len} seeds, {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).expect("a template"));
    let searched = search(args.first..args.first + args.seeds, mutant, false, || bar.inc(1));
    bar.finish_and_clear();
    searched
}

fn table(most: u64) -> ExitCode {
    println!("| axiom | rule | mutant | seeds to kill |\n|---|---|---|---|");
    let mut alive = 0;
    for Mutant { name, axiom, rule } in MUTANTS {
        let searched = search(0..most, Some(name), true, || {});
        let killed = searched.findings.first().map(|finding| finding.seed + 1);
        alive += u32::from(killed.is_none());
        let killed = killed.map_or("**alive**".to_owned(), |seeds| seeds.to_string());
        println!("| {axiom} | {rule} | `{name}` | {killed} |");
    }
    if alive == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
