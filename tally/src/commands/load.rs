//! `tally load`: an open loop. A request that had to wait for its turn counts that as latency, so
//! the figures do not flatter (coordinated omission).

mod events;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use reqwest::Method;
use tally_service::clock::{SharedClock, SystemClock, sleep};
use tally_service::stopper::Stopper;
use tokio::sync::{Semaphore, mpsc};

use crate::cli::{LoadArgs, Output};
use crate::client::Client;
use crate::output;
use events::Events;
use report::Report;

const PROGRESS: &str = "{bar:40} {pos}/{len} requests  {per_sec}  {eta}";

/// What became of one request.
struct Answered {
    /// From the time it should have been sent.
    latency: Duration,
    events: u64,
    /// The status; 0 if there was no answer.
    status: u16,
}

pub(crate) async fn run(
    client: &Client,
    output: Output,
    args: LoadArgs,
    stopper: Stopper,
) -> anyhow::Result<()> {
    ensure!(args.rate > 0 && args.batch > 0 && args.subjects > 0, "nothing to send");
    ensure!(args.skew >= 0.0, "--skew must not be negative");
    client.text(client.request(Method::GET, "/livez")).await?; // is anybody there?
    let requests = (args.rate as f64 * args.duration.as_secs_f64() / args.batch as f64).ceil();
    let progress = output::progress(requests as u64, PROGRESS);
    let clock = SystemClock::shared();
    let (answered, mut answers) = mpsc::unbounded_channel();
    let sending = send(client, &args, requests as u64, clock.clone(), answered, stopper);
    let collecting = async {
        let mut report = Report::new(&args);
        while let Some(answer) = answers.recv().await {
            report.add(&answer);
            progress.inc(1);
        }
        report
    };
    let started = clock.monotonic();
    let ((), mut report) = tokio::join!(sending, collecting);
    report.finish(clock.monotonic().saturating_sub(started));
    progress.finish_and_clear();
    output::print(output, &report, Report::table)
}

/// Sends each request at its time; at most `in_flight` at once, the rest wait.
async fn send(
    client: &Client,
    args: &LoadArgs,
    requests: u64,
    clock: SharedClock,
    answered: mpsc::UnboundedSender<Answered>,
    stopper: Stopper,
) {
    let mut events = Events::new(args);
    let permits = Arc::new(Semaphore::new(args.in_flight.max(1)));
    let between = Duration::from_secs_f64(args.batch as f64 / args.rate as f64);
    let started = clock.monotonic();
    for number in 0..requests {
        let due = started + between.mul_f64(number as f64);
        let now = clock.monotonic();
        if due > now + Duration::from_millis(1) {
            sleep(due - now).await;
        }
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        if stopper.is_stopped() {
            return;
        }
        let request = client
            .request(Method::POST, "/v1/events")
            .header("content-type", "application/x-ndjson")
            .body(events.batch(args.batch));
        let (client, clock) = (client.clone(), clock.clone());
        let (answered, events) = (answered.clone(), args.batch as u64);
        tokio::spawn(async move {
            let status = client.answer(request).await.map_or(0, |(status, _)| status.as_u16());
            let latency = clock.monotonic().saturating_sub(due);
            answered.send(Answered { latency, events, status }).ok();
            drop(permit);
        });
    }
}
