//! The roles: what each of them runs, and in which order it stops.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use axum::Router;
use futures::future::BoxFuture;
use tally_ingest::Ingest;
use tally_proto::Kinds;
use tally_reader::Reader;
use tally_service::clock::{SharedClock, SystemClock, sleep};
use tally_service::health::Health;
use tally_service::http::{HttpLimits, bind, serve};
use tally_service::metrics::Metrics;
use tally_service::stopper::Stopper;

use crate::settings::Settings;
use crate::wiring::{self, Backends};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All of it.
    Serve,
    /// Events in.
    Ingest,
    /// Events to facts.
    Aggregator,
    /// Totals out.
    Reader,
}

/// What all parts of a process share.
struct Process {
    settings: Settings,
    backends: Backends,
    kinds: Arc<Kinds>,
    clock: SharedClock,
    health: Health,
    metrics: Metrics,
}

impl Role {
    fn takes_events(self) -> bool {
        matches!(self, Role::Serve | Role::Ingest)
    }

    fn folds(self) -> bool {
        matches!(self, Role::Serve | Role::Aggregator)
    }

    fn reads(self) -> bool {
        matches!(self, Role::Serve | Role::Reader)
    }
}

/// Runs a role until it is stopped.
pub(crate) async fn run(role: Role, settings: Settings, stopper: Stopper) -> anyhow::Result<()> {
    ensure!(
        role == Role::Serve
            || settings.kafka.brokers.is_some() && settings.cql.contact_points.is_some(),
        "a role on its own needs both kafka.brokers and cql.contact_points \
         (`tally serve` runs without either)"
    );
    let clock = SystemClock::shared();
    let stopped = stopper.token();
    let opened = stopped.run_until_cancelled(wiring::open(&settings, clock.clone())).await;
    let Some(backends) = opened.transpose()? else { return Ok(()) };
    let listening = bind(settings.listen_address(role)).await?;
    let address = listening.address;
    let process = Process {
        settings,
        backends,
        kinds: Arc::new(Kinds::built_in()),
        clock,
        health: Health::default(),
        metrics: Metrics::default(),
    };
    let mut router = tally_service::admin::router(process.health.clone(), process.metrics.clone());
    let mut ingest = None;
    if role.takes_events() {
        let started = Arc::new(process.ingest());
        router = router.merge(tally_ingest::router(started.clone()));
        ingest = Some(started);
    }
    let broken = process.watch_for_breakage(&stopper);
    let background = Stopper::new();
    if role.reads() {
        router = router.merge(process.start_reader(&background));
    }
    let aggregator = role.folds().then(|| {
        let aggregator = process.aggregator(&background, &address.to_string());
        tokio::spawn(tally_aggregator::run(aggregator))
    });
    tracing::info!(?role, %address, "serving");
    if role == Role::Serve {
        eprintln!("tally serves at http://{address}  (stop it with ctrl-c)");
    }
    let http = serve(listening, router, HttpLimits::default(), stopper.clone());
    let ended = wait_for(http, aggregator, ingest, &stopper, &background).await;
    match broken.get() {
        Some(why) => bail!("{why}"),
        None => ended,
    }
}

impl Process {
    /// Stops the process when its log or store can never be written again by it.
    fn watch_for_breakage(&self, stopper: &Stopper) -> Arc<OnceLock<String>> {
        let broken = Arc::new(OnceLock::new());
        let (log, store) = (self.backends.log.clone(), self.backends.store.clone());
        let parts: [BoxFuture<'static, String>; 2] = [
            Box::pin(async move { log.broken().await }),
            Box::pin(async move { store.broken().await }),
        ];
        for part in parts {
            let (broken, stopper) = (broken.clone(), stopper.clone());
            tokio::spawn(async move {
                let why = part.await;
                tracing::error!(why, "stopping");
                broken.set(why).ok();
                stopper.stop();
            });
        }
        broken
    }

    fn ingest(&self) -> Ingest {
        Ingest::start(tally_ingest::Context {
            log: self.backends.log.clone(),
            store: self.backends.store.clone(),
            epoch: self.backends.epoch,
            kinds: self.kinds.clone(),
            settings: self.settings.ingest.clone(),
            clock: self.clock.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            seed: rand::random(),
        })
    }

    fn start_reader(&self, stopper: &Stopper) -> Router {
        let reader = Arc::new(Reader::new(tally_reader::Context {
            store: self.backends.store.clone(),
            partitions: self.backends.log.partitions(),
            epoch: self.backends.epoch,
            kinds: self.kinds.clone(),
            settings: self.settings.reader.clone(),
            clock: self.clock.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
        }));
        let (watching, watch_stopper) = (reader.clone(), stopper.clone());
        stopper.spawn(async move { watching.watch(&watch_stopper).await });
        tally_reader::router(reader)
    }

    fn aggregator(&self, stopper: &Stopper, address: &str) -> tally_aggregator::Context {
        let id = self.settings.aggregator.id.clone().unwrap_or_else(|| {
            let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
            format!("{}/{address}", host.trim())
        });
        tally_aggregator::Context {
            log: self.backends.log.clone(),
            store: self.backends.store.clone(),
            epoch: self.backends.epoch,
            kinds: self.kinds.clone(),
            settings: self.settings.aggregator.clone(),
            limits: self.settings.aggregator.engine_limits(self.backends.log.partitions()),
            flush: self.settings.flush.clone(),
            id,
            clock: self.clock.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            stopper: stopper.clone(),
        }
    }
}

/// Serves until stopped; then lets requests end, what is queued reach the log, and the aggregator
/// flush once more. An aggregator that fails ends the process.
async fn wait_for(
    http: impl Future<Output = ()>,
    aggregator: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
    ingest: Option<Arc<Ingest>>,
    stopper: &Stopper,
    background: &Stopper,
) -> anyhow::Result<()> {
    let aggregating = async {
        let ended = match aggregator {
            Some(task) => task.await.context("the aggregator has died").flatten(),
            None => {
                background.stopped().await;
                Ok(())
            }
        };
        stopper.stop();
        ended
    };
    let serving = async {
        http.await;
        if let Some(ingest) = ingest {
            let drained = async {
                while !ingest.is_drained() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            tally_service::clock::timeout(Duration::from_secs(5), drained).await.ok();
        }
        background.stop();
    };
    let (ended, ()) = tokio::join!(aggregating, serving);
    background.finished(Duration::from_secs(2)).await;
    ended
}
