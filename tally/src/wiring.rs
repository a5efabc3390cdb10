//! Wiring: the only place that picks adapters, and that holds log and store against the layout.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_log::embedded::EmbeddedLog;
use tally_log::kafka::KafkaLog;
use tally_log::{EventLog, LogError};
use tally_proto::{Epoch, Layout};
use tally_service::backoff::backoff;
use tally_service::clock::{SharedClock, sleep};
use tally_store::cql::CqlStore;
use tally_store::embedded::EmbeddedStore;
use tally_store::{FactStore, StoreError};

use crate::settings::Settings;

/// Partitions of a new topic for which nobody named a number: generous, since they never grow.
const KAFKA_PARTITIONS: u32 = 64;

/// What a process works on.
pub(crate) struct Backends {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) store: Arc<dyn FactStore>,
    pub(crate) epoch: Epoch,
    /// Held for as long as the embedded log or store is open.
    _lock: Option<File>,
}

/// A log, a store and a layout that may not belong together.
pub(crate) struct Parts {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) store: Arc<dyn FactStore>,
    pub(crate) layout: Layout,
    lock: Option<File>,
}

impl Parts {
    /// Whether no other process can work on them.
    pub(crate) fn is_alone(&self) -> bool {
        self.lock.is_some()
    }
}

/// Opens the log and the store that the settings name, and refuses a pair that does not belong
/// together. A log or store that does not answer yet is waited for.
pub(crate) async fn open(settings: &Settings, clock: SharedClock) -> anyhow::Result<Backends> {
    let Parts { log, store, mut layout, lock } = open_parts(settings, clock).await?;
    check_layout(&layout, &*log, settings)?;
    if layout.fold_version < Layout::FOLD_VERSION {
        ensure!(
            settings.cql.contact_points.is_none(),
            "the layout is of fold version {}, this build folds as version {}: stop every process \
             of an older build, then run `tally setup` once more",
            layout.fold_version,
            Layout::FOLD_VERSION
        );
        layout = raise_fold(&*store, layout).await?; // no other process can be at work
    }
    let epoch = Epoch::new(u64::from(layout.epoch))?;
    Ok(Backends { log, store, epoch, _lock: lock })
}

/// Opens the log and the store that the settings name, whether or not they belong together.
pub(crate) async fn open_parts(settings: &Settings, clock: SharedClock) -> anyhow::Result<Parts> {
    let lock = lock_if_embedded(settings)?;
    let store = patiently("store", async || open_store(settings).await).await?;
    let log = patiently("log", async || open_log(settings, clock.clone()).await).await?;
    let layout = match patiently("store", async || Ok(store.layout().await?)).await? {
        Some(layout) => layout,
        None if settings.cql.contact_points.is_some() => {
            bail!("the store has no layout yet: run `tally setup` once")
        }
        None => store.create_layout(&layout_of(&*log)).await?,
    };
    Ok(Parts { log, store, layout, lock })
}

/// Tries again for as long as the other side does not answer; other errors are final.
async fn patiently<T>(part: &str, open: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut waits = backoff(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match open().await {
            Err(error) if is_away(&error) => {
                tracing::warn!(part, error = format!("{error:#}"), "waiting for the {part}");
                sleep(waits.next().unwrap_or_default()).await;
            }
            opened => return opened,
        }
    }
}

fn is_away(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(LogError::is_retryable)
        || error.downcast_ref().is_some_and(StoreError::is_retryable)
}

async fn open_store(settings: &Settings) -> anyhow::Result<Arc<dyn FactStore>> {
    if settings.cql.contact_points.is_some() {
        let store = CqlStore::open(&settings.cql, settings.allow_single_replica).await?;
        return Ok(Arc::new(store));
    }
    let folder = settings.data_dir.join("store");
    let store = EmbeddedStore::open(&folder)
        .with_context(|| format!("cannot open the store in {}", folder.display()))?;
    Ok(Arc::new(store))
}

async fn open_log(settings: &Settings, clock: SharedClock) -> anyhow::Result<Arc<dyn EventLog>> {
    if settings.kafka.brokers.is_some() {
        let log = KafkaLog::open(&settings.kafka, settings.allow_single_replica).await?;
        return Ok(Arc::new(log));
    }
    let folder = settings.data_dir.join("log");
    let log = EmbeddedLog::open(&folder, settings.partitions, settings.log.clone(), clock)
        .with_context(|| format!("cannot open the log in {}", folder.display()))?;
    Ok(Arc::new(log))
}

/// Takes the data folder for this process alone, if anything in it is used.
fn lock_if_embedded(settings: &Settings) -> anyhow::Result<Option<File>> {
    if settings.kafka.brokers.is_some() && settings.cql.contact_points.is_some() {
        return Ok(None);
    }
    lock(&settings.data_dir).map(Some)
}

fn lock(folder: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the data folder {}", folder.display()))?;
    let file = File::create(folder.join("lock"))
        .with_context(|| format!("cannot write to the data folder {}", folder.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => bail!(
            "the data folder {} is in use by another process: stop it, or name another folder \
             with --data-dir",
            folder.display()
        ),
    }
}

/// One thing that `tally setup` looked after, and whether it had to be created.
pub(crate) struct SetUp {
    pub(crate) what: String,
    pub(crate) created: bool,
}

/// Creates what is missing of topic, keyspace, tables and layout.
pub(crate) async fn set_up(settings: &Settings) -> anyhow::Result<Vec<SetUp>> {
    let (kafka, cql) = (&settings.kafka, &settings.cql);
    let mut done = Vec::new();
    if kafka.brokers.is_some() {
        let partitions = settings.partitions.unwrap_or(KAFKA_PARTITIONS);
        let created = KafkaLog::create(kafka, partitions, settings.allow_single_replica).await?;
        done.push(SetUp { what: format!("topic {}", kafka.topic), created });
    }
    if cql.contact_points.is_some() {
        let steps = CqlStore::create(cql, settings.allow_single_replica).await?;
        done.push(SetUp { what: format!("keyspace {}", cql.keyspace), created: steps > 0 });
    }
    if kafka.brokers.is_some() && cql.contact_points.is_some() {
        let log = KafkaLog::open(kafka, settings.allow_single_replica).await?;
        let store = CqlStore::open(cql, settings.allow_single_replica).await?;
        let created = store.layout().await?.is_none();
        let layout = store.create_layout(&layout_of(&log)).await?;
        check_layout(&layout, &log, settings)?;
        let raised = layout.fold_version < Layout::FOLD_VERSION;
        let layout = if raised { raise_fold(&store, layout).await? } else { layout };
        let what = format!(
            "layout of {} partitions, fold version {}",
            layout.partitions, layout.fold_version
        );
        done.push(SetUp { what, created: created || raised });
    }
    Ok(done)
}

/// Lets the log fold as this build does from here on: older builds refuse it.
async fn raise_fold(store: &dyn FactStore, layout: Layout) -> anyhow::Result<Layout> {
    let raised = Layout { fold_version: Layout::FOLD_VERSION, ..layout.clone() };
    Ok(store.replace_layout(&layout, &raised).await?)
}

/// The layout of a new log.
fn layout_of(log: &dyn EventLog) -> Layout {
    Layout {
        cluster: log.cluster().to_owned(),
        topic: log.topic().to_owned(),
        partitions: log.partitions(),
        epoch: Epoch::FIRST.number(),
        fold_version: Layout::FOLD_VERSION,
    }
}

/// The log must be the one that the layout speaks of.
fn check_layout(layout: &Layout, log: &dyn EventLog, settings: &Settings) -> anyhow::Result<()> {
    ensure!(
        layout.fold_version <= Layout::FOLD_VERSION,
        "the layout asks for fold version {}, this build knows {}: upgrade it",
        layout.fold_version,
        Layout::FOLD_VERSION
    );
    ensure!(
        layout.topic == log.topic(),
        "the layout belongs to topic '{}', but the settings name '{}'",
        layout.topic,
        log.topic()
    );
    ensure!(
        layout.cluster == log.cluster(),
        "the layout belongs to the log of cluster '{}', but this is cluster '{}': facts of one log \
         are false of another. Connect to the right one, use another keyspace, or, if it replaces \
         the former one on purpose, go on with `tally epoch next`",
        layout.cluster,
        log.cluster()
    );
    ensure!(
        layout.partitions == log.partitions(),
        "the layout fixes {} partitions for life, but topic '{}' has {}: restore the topic",
        layout.partitions,
        log.topic(),
        log.partitions()
    );
    if let Some(asked) = settings.partitions {
        ensure!(
            asked == layout.partitions,
            "the layout fixes {} partitions for life, but the settings ask for {asked}",
            layout.partitions
        );
    }
    Ok(())
}
