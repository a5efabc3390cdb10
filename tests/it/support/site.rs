//! A site: a topic and a keyspace of their own, set up, and the processes that work on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::RwLockReadGuard;

use super::{Process, Servers, servers};

/// One deployment of Tally on the shared servers.
pub(crate) struct Site {
    pub(crate) servers: &'static Servers,
    pub(crate) settings: BTreeMap<String, String>,
    /// Held by sites that need all servers up; `None` for those that take one away.
    _quiet: Option<RwLockReadGuard<'static, ()>>,
}

impl Site {
    /// A site that needs its servers.
    pub(crate) async fn new(name: &str) -> Self {
        let quiet = servers().await.quiet().await;
        Self::set_up(name, Some(quiet)).await
    }

    /// A site whose test takes servers away, and holds them alone meanwhile.
    pub(crate) async fn for_outage(name: &str) -> Self {
        Self::set_up(name, None).await
    }

    async fn set_up(name: &str, quiet: Option<RwLockReadGuard<'static, ()>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{name}_{}_{number}", std::process::id());
        let servers = servers().await;
        let mut settings = servers.settings.clone();
        for (key, value) in [
            ("TALLY__KAFKA__TOPIC", unique.clone()),
            ("TALLY__CQL__KEYSPACE", unique.clone()),
            ("TALLY__AGGREGATOR__GROUP", unique),
            ("TALLY__PARTITIONS", "8".to_owned()),
            ("TALLY__FLUSH__INTERVAL_MS", "300".to_owned()),
            ("TALLY__READER__REDUCE_INTERVAL_MS", "200".to_owned()),
        ] {
            settings.insert(key.to_owned(), value);
        }
        let site = Site { servers, settings, _quiet: quiet };
        let (status, log) = Process::run(&["setup"], &site.settings).await;
        assert!(status.success(), "setup: {log}");
        site
    }

    pub(crate) fn topic(&self) -> &str {
        &self.settings["TALLY__KAFKA__TOPIC"]
    }

    pub(crate) async fn ingest(&self) -> Process {
        Process::start(&["ingest"], &self.settings).await
    }

    pub(crate) async fn reader(&self) -> Process {
        Process::start(&["reader"], &self.settings).await
    }

    /// An aggregator of all partitions, without a group.
    pub(crate) async fn assigned_aggregator(&self) -> Process {
        Process::start(&["aggregator", "--set", "aggregator.assign=0-7"], &self.settings).await
    }

    /// An aggregator of a share of the partitions.
    pub(crate) async fn group_aggregator(&self, id: &str) -> Process {
        let id = format!("aggregator.id={id}");
        Process::start(&["aggregator", "--set", &id], &self.settings).await
    }
}
