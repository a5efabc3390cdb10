//! `tally epoch next`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tally_aggregator::epoch::{self, Begin, Move, Step};
use tally_service::clock::SystemClock;

use crate::cli::Output;
use crate::output;
use crate::settings::Settings;
use crate::wiring;

#[derive(Debug, Serialize)]
struct Answer {
    epoch: u8,
    rows: u64,
    partitions: Vec<Begun>,
}

#[derive(Debug, Serialize)]
struct Begun {
    partition: usize,
    from: u64,
    replaced: bool,
}

pub(crate) async fn next(
    settings: &Settings,
    output: Output,
    begin: Begin,
    stopped: bool,
) -> anyhow::Result<()> {
    let parts = wiring::open_parts(settings, SystemClock::shared()).await?;
    // Who holds the folder of an embedded log or store is alone.
    let nobody_runs = stopped || parts.is_alone();
    let bar = ProgressBar::new_spinner(); // hidden where there is no terminal
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let context = Move {
        log: parts.log.clone(),
        store: parts.store.clone(),
        layout: parts.layout.clone(),
        begin,
        wait: if nobody_runs { Duration::ZERO } else { epoch::UNTIL_ALL_STOPPED },
    };
    let moved = epoch::next(context, |step| {
        bar.set_message(match step {
            Step::Frozen(partitions) => format!("{partitions} checkpoints are frozen"),
            Step::Waiting(wait) => {
                format!("waiting {} s until every aggregator has noticed", wait.as_secs())
            }
            Step::Rebased(rows) => format!("{rows} rows are written under the next epoch"),
        });
    })
    .await?;
    bar.finish_and_clear();
    let begun = |(partition, (as_of, replaced)): (usize, &(tally_proto::AsOf, bool))| Begun {
        partition,
        from: as_of.0,
        replaced: *replaced,
    };
    let answer = Answer {
        epoch: moved.epoch.number(),
        rows: moved.rows,
        partitions: moved.partitions.iter().enumerate().map(begun).collect(),
    };
    output::print(output, &answer, |answer| {
        let row = |begun: &Begun| {
            let log = if begun.replaced { "another one" } else { "the same" };
            vec![begun.partition.to_string(), begun.from.to_string(), log.to_owned()]
        };
        let rows: Vec<_> = answer.partitions.iter().map(row).collect();
        format!(
            "epoch {} is in force, {} rows were written again; start all processes again\n{}",
            answer.epoch,
            answer.rows,
            output::table(&["PARTITION", "GOES ON FROM", "LOG"], &rows)
        )
    })
}
