//! Real Kafka and real Cassandra: named by the environment, in containers, or from `deploy/local`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use testcontainers_modules::kafka::apache::{KAFKA_PORT, Kafka};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::root;

/// Which server an outage takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    Broker,
    Node,
}

/// The servers of this run of the tests.
pub(crate) struct Servers {
    /// What every process of ours is told.
    pub(crate) settings: BTreeMap<String, String>,
    kind: Kind,
    /// Who only uses the servers reads it; an outage holds it alone.
    quiet: RwLock<()>,
}

enum Kind {
    Named,
    Containers {
        kafka: Box<ContainerAsync<Kafka>>,
        cassandra: Box<ContainerAsync<GenericImage>>,
    },
    /// Stops all servers when its standard input ends, however this process ends.
    Local {
        _script: Mutex<Child>,
        folder: String,
    },
}

/// The servers, started at the first call.
pub(crate) async fn servers() -> &'static Servers {
    static SERVERS: OnceCell<Servers> = OnceCell::const_new();
    SERVERS.get_or_init(start).await
}

async fn start() -> Servers {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (settings, kind) = match (named("TALLY_TEST_KAFKA"), named("TALLY_TEST_CQL")) {
        (Some(kafka), Some(cql)) => (single(&kafka, &cql), Kind::Named),
        _ if docker_answers() => containers().await,
        _ => tokio::task::spawn_blocking(local).await.unwrap(),
    };
    Servers { settings, kind, quiet: RwLock::new(()) }
}

/// The settings of servers with one copy of everything.
fn single(kafka: &str, cql: &str) -> BTreeMap<String, String> {
    [
        ("TALLY__KAFKA__BROKERS", kafka),
        ("TALLY__CQL__CONTACT_POINTS", cql),
        ("TALLY__KAFKA__REPLICATION_FACTOR", "1"),
        ("TALLY__CQL__REPLICATION_FACTOR", "1"),
        ("TALLY__ALLOW_SINGLE_REPLICA", "true"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn docker_answers() -> bool {
    let mut docker = Command::new("docker");
    docker.arg("info").stdout(Stdio::null()).stderr(Stdio::null());
    docker.status().is_ok_and(|status| status.success())
}

async fn containers() -> (BTreeMap<String, String>, Kind) {
    let kafka = Kafka::default().start().await.expect("a Kafka container");
    let cassandra = GenericImage::new("cassandra", "5.0")
        .with_exposed_port(9042.tcp())
        .with_wait_for(WaitFor::message_on_stdout("Starting listening for CQL clients"))
        .with_env_var("JVM_OPTS", "-Xms256m -Xmx1g")
        .with_startup_timeout(Duration::from_secs(180))
        .start()
        .await
        .expect("a Cassandra container");
    let kafka_port = kafka.get_host_port_ipv4(KAFKA_PORT).await.unwrap();
    let cql_port = cassandra.get_host_port_ipv4(9042).await.unwrap();
    let settings = single(&format!("127.0.0.1:{kafka_port}"), &format!("127.0.0.1:{cql_port}"));
    (settings, Kind::Containers { kafka: Box::new(kafka), cassandra: Box::new(cassandra) })
}

fn local() -> (BTreeMap<String, String>, Kind) {
    let folder = format!("/tmp/tally-tests-{}", std::process::id());
    let mut script = Command::new(root().join("deploy/local/cluster"))
        .args(["run", "1", "1"])
        .env("TALLY_LOCAL_DIR", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("deploy/local/cluster");
    let mut settings = BTreeMap::new();
    let mut ready = false;
    for line in BufReader::new(script.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "READY" {
            ready = true;
            break;
        }
        if let Some((name, value)) = line.split_once('=') {
            settings.insert(name.to_owned(), value.to_owned());
        }
    }
    assert!(ready, "deploy/local did not bring up its servers");
    (settings, Kind::Local { _script: Mutex::new(script), folder })
}

impl Servers {
    /// Keeps outages away while it is held.
    pub(crate) async fn quiet(&self) -> RwLockReadGuard<'_, ()> {
        self.quiet.read().await
    }

    /// Waits until nobody else uses the servers, for a test that takes one of them away.
    pub(crate) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.quiet.write().await
    }

    /// Takes a server away: killed with -9 where we started it, else frozen.
    pub(crate) async fn take(&self, which: Outage) {
        match (&self.kind, which) {
            (Kind::Local { folder, .. }, _) => cluster(folder, &["kill", name(which), "1"]).await,
            (Kind::Containers { kafka, .. }, Outage::Broker) => kafka.pause().await.unwrap(),
            (Kind::Containers { cassandra, .. }, Outage::Node) => cassandra.pause().await.unwrap(),
            (Kind::Named, _) => panic!("servers named by the environment cannot be taken away"),
        }
    }

    /// Gives it back.
    pub(crate) async fn give_back(&self, which: Outage) {
        match (&self.kind, which) {
            (Kind::Local { folder, .. }, _) => cluster(folder, &["start", name(which), "1"]).await,
            (Kind::Containers { kafka, .. }, Outage::Broker) => kafka.unpause().await.unwrap(),
            (Kind::Containers { cassandra, .. }, Outage::Node) => {
                cassandra.unpause().await.unwrap();
            }
            (Kind::Named, _) => {}
        }
    }
}

fn name(which: Outage) -> &'static str {
    match which {
        Outage::Broker => "broker",
        Outage::Node => "node",
    }
}

async fn cluster(folder: &str, args: &[&str]) {
    let mut command = Command::new(root().join("deploy/local/cluster"));
    command.args(args).env("TALLY_LOCAL_DIR", folder).stdin(Stdio::null());
    let status = tokio::task::spawn_blocking(move || command.status()).await.unwrap();
    assert!(status.unwrap().success(), "cluster {args:?}");
}
