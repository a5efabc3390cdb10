//! `tally prove`: counts under load while processes are killed, frozen and doubled, and then holds
//! every total against the truth.

mod children;
mod judge;
mod report;
mod senders;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use rand::RngExt;
use rand::rngs::StdRng;
use tally_service::clock::{SharedClock, SystemClock, interval};
use tally_service::stopper::Stopper;

use crate::cli::{Global, ProveArgs};
use crate::output;
use crate::settings::Settings;
use children::{Children, Part};
use report::Report;
use senders::Senders;

/// From one fault to the next.
const FAULT_EVERY: Duration = Duration::from_secs(8);

/// Frozen for longer than a consumer group waits for its members.
const FROZEN_FOR: Duration = Duration::from_secs(9);

const PROGRESS: &str = "{bar:30} {pos} of {len} s, {msg} {prefix}";

pub(crate) async fn run(
    settings: Settings,
    global: &Global,
    args: &ProveArgs,
    stopper: Stopper,
) -> anyhow::Result<()> {
    ensure!(args.rate > 0, "nothing to send");
    let (kafka, cql) = (settings.kafka.brokers.is_some(), settings.cql.contact_points.is_some());
    ensure!(kafka == cql, "a cluster needs both kafka.brokers and cql.contact_points");
    let clock = SystemClock::shared();
    let mut children = Children::start(&settings, global, clock.clone()).await?;
    let mut report = Report::new(args, kafka);
    let senders =
        Arc::new(Senders::new(args, children.partitions(), children.ingest(), clock.clone()));
    let sending: Vec<_> = senders.clone().start();
    let outcome = strike(args, &mut children, &mut report, &senders, &clock, &stopper).await;
    senders.stop();
    for sender in sending {
        sender.await?;
    }
    outcome?;
    ensure!(!stopper.is_stopped(), "stopped before anything was compared");
    eprintln!("comparing every total with the truth");
    children.heal().await?;
    let compared = judge::compare(children.reader(), &senders.truth(), &clock).await;
    report.judge(compared?);
    output::print(global.output, &report, Report::table)?;
    if !report.is_right() {
        bail!("not all totals are right; logs and data are in {}", children.keep().display());
    }
    children.finish(args.keep)
}

/// Loads for the time that was asked for, with a fault every few seconds.
async fn strike(
    args: &ProveArgs,
    children: &mut Children,
    report: &mut Report,
    senders: &Senders,
    clock: &SharedClock,
    stopper: &Stopper,
) -> anyhow::Result<()> {
    let bar = output::progress(args.duration.as_secs(), PROGRESS);
    bar.set_prefix(format!("at {} a second", args.rate));
    let mut rng: StdRng = rand::make_rng();
    let mut tick = interval(Duration::from_millis(200));
    let (started, mut next_fault) = (clock.monotonic(), FAULT_EVERY / 2);
    let mut frozen: Option<(Part, Duration)> = None;
    loop {
        tick.tick().await;
        let elapsed = clock.monotonic().saturating_sub(started);
        bar.set_position(elapsed.as_secs());
        bar.set_message(format!("{} events acknowledged", senders.acknowledged()));
        if elapsed >= args.duration || stopper.is_stopped() {
            break;
        }
        if let Some((part, until)) = frozen.filter(|(_, until)| elapsed >= *until) {
            children.thaw(part)?;
            frozen = None;
            next_fault = until + FAULT_EVERY;
        }
        if elapsed < next_fault || frozen.is_some() {
            continue;
        }
        next_fault = elapsed + FAULT_EVERY;
        let part = children.any(&mut rng);
        match rng.random_range(0..4) {
            0 => {
                children.freeze(part)?;
                report.fault("frozen for 9 s", part);
                frozen = Some((part, elapsed + FROZEN_FOR));
            }
            1 if children.has_zombies() => {
                children.double().await?;
                report.fault("a second owner of every partition", Part::Aggregator);
            }
            _ => {
                children.kill(part)?;
                report.fault("kill -9", part);
                children.restart(part).await?;
            }
        }
    }
    if let Some((part, _)) = frozen {
        children.thaw(part)?;
    }
    bar.finish_and_clear();
    Ok(())
}
