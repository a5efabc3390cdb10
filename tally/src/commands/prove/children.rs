//! The processes that are killed: this binary again, on a folder or topic and keyspace of their own.

use std::fmt;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rand::RngExt;
use rand::rngs::StdRng;
use tally_service::clock::{SharedClock, sleep};

use crate::cli::Global;
use crate::settings::Settings;
use crate::wiring;

/// Partitions of the log that is made for it.
const PARTITIONS: u32 = 8;

/// How long a process may take until it is ready again, whatever was done to its neighbours.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Serve,
    Ingest,
    Aggregator,
    OtherAggregator,
    Reader,
}

impl Part {
    const EMBEDDED: [Part; 1] = [Part::Serve];
    const CLUSTER: [Part; 4] =
        [Part::Ingest, Part::Aggregator, Part::OtherAggregator, Part::Reader];

    fn command(self) -> &'static str {
        match self {
            Part::Serve => "serve",
            Part::Ingest => "ingest",
            Part::Aggregator | Part::OtherAggregator => "aggregator",
            Part::Reader => "reader",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())
    }
}

struct Running {
    part: Part,
    port: u16,
    child: Child,
}

/// All processes; killed when this is dropped.
pub(super) struct Children {
    folder: PathBuf,
    flags: Vec<String>,
    parts: &'static [Part],
    running: Vec<Running>,
    /// A second owner of every partition, that nobody told to stop.
    zombies: Vec<Child>,
    clock: SharedClock,
}

impl Drop for Children {
    fn drop(&mut self) {
        let zombies = self.zombies.iter_mut();
        for child in self.running.iter_mut().map(|running| &mut running.child).chain(zombies) {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Children {
    pub(super) async fn start(
        settings: &Settings,
        global: &Global,
        clock: SharedClock,
    ) -> anyhow::Result<Self> {
        let name = format!("tally-prove-{}-{}", std::process::id(), clock.unix_ms());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let is_cluster = settings.kafka.brokers.is_some();
        let keyspace = name.replace('-', "_");
        let mut flags = global.settings.clone();
        flags.push(format!("partitions={PARTITIONS}"));
        if is_cluster {
            flags.push(format!("kafka.topic={name}"));
            flags.push(format!("cql.keyspace={keyspace}"));
            flags.push(format!("aggregator.group={name}"));
            let mut own = settings.clone();
            own.partitions = Some(PARTITIONS);
            own.kafka.topic = name;
            own.cql.keyspace = keyspace;
            wiring::set_up(&own).await?;
        }
        let parts: &[Part] = if is_cluster { &Part::CLUSTER } else { &Part::EMBEDDED };
        let mut children = Children {
            flags: children_flags(global, flags, &folder),
            folder,
            parts,
            running: Vec::new(),
            zombies: Vec::new(),
            clock,
        };
        for part in parts {
            let port = free_port()?;
            let child = children.spawn(*part, port, &[])?;
            children.running.push(Running { part: *part, port, child });
        }
        for part in parts {
            children.wait_until_ready(*part).await?;
        }
        Ok(children)
    }

    pub(super) fn partitions(&self) -> u32 {
        PARTITIONS
    }

    /// Where events go, whoever serves them.
    pub(super) fn ingest(&self) -> String {
        self.url(self.parts[0])
    }

    /// Where totals come from.
    pub(super) fn reader(&self) -> String {
        self.url(self.parts[self.parts.len() - 1])
    }

    fn url(&self, part: Part) -> String {
        let port = self.running.iter().find(|running| running.part == part).map_or(0, |r| r.port);
        format!("http://127.0.0.1:{port}")
    }

    /// One of the processes.
    pub(super) fn any(&self, rng: &mut StdRng) -> Part {
        self.parts[rng.random_range(0..self.parts.len())]
    }

    /// Whether two processes can own one partition at once.
    pub(super) fn has_zombies(&self) -> bool {
        self.parts.len() > 1
    }

    fn spawn(&self, part: Part, port: u16, more: &[&str]) -> anyhow::Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{part}-{port}.log")))?;
        let child = Command::new(std::env::current_exe()?)
            .arg(part.command())
            .args(&self.flags)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(child)
    }

    fn find(&mut self, part: Part) -> anyhow::Result<&mut Running> {
        self.running.iter_mut().find(|running| running.part == part).context("no such process")
    }

    /// kill -9.
    pub(super) fn kill(&mut self, part: Part) -> anyhow::Result<()> {
        let running = self.find(part)?;
        running.child.kill()?;
        running.child.wait()?;
        Ok(())
    }

    /// Starts it again, on the same port.
    pub(super) async fn restart(&mut self, part: Part) -> anyhow::Result<()> {
        let port = self.find(part)?.port;
        let child = self.spawn(part, port, &[])?;
        self.find(part)?.child = child;
        // Others may be frozen or away: that it runs is enough, that it works is judged at the end.
        sleep(Duration::from_millis(200)).await;
        let running = self.find(part)?;
        let ended = running.child.try_wait()?;
        ensure!(ended.is_none(), "{part} does not start: see {}", self.folder.display());
        Ok(())
    }

    pub(super) fn freeze(&mut self, part: Part) -> anyhow::Result<()> {
        self.signal(part, "STOP")
    }

    pub(super) fn thaw(&mut self, part: Part) -> anyhow::Result<()> {
        self.signal(part, "CONT")
    }

    fn signal(&mut self, part: Part, signal: &str) -> anyhow::Result<()> {
        let pid = self.find(part)?.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status()?;
        ensure!(sent.success(), "cannot send SIG{signal} to {part}");
        Ok(())
    }

    /// Starts an aggregator that owns every partition, whoever else does; ends the former one.
    pub(super) async fn double(&mut self) -> anyhow::Result<()> {
        for mut zombie in self.zombies.drain(..) {
            zombie.kill()?;
            zombie.wait()?;
        }
        let all = format!("aggregator.assign=0-{}", PARTITIONS - 1);
        let zombie = self.spawn(Part::Aggregator, free_port()?, &["--set", &all])?;
        self.zombies.push(zombie);
        Ok(())
    }

    /// Everything runs, and is ready.
    pub(super) async fn heal(&mut self) -> anyhow::Result<()> {
        for part in self.parts {
            if self.find(*part)?.child.try_wait()?.is_some() {
                self.restart(*part).await?;
            }
        }
        for part in self.parts {
            self.wait_until_ready(*part).await?;
        }
        Ok(())
    }

    async fn wait_until_ready(&self, part: Part) -> anyhow::Result<()> {
        let (http, url) = (reqwest::Client::new(), format!("{}/readyz", self.url(part)));
        let started = self.clock.monotonic();
        let mut said = String::new();
        while self.clock.monotonic().saturating_sub(started) < READY_WITHIN {
            match http.get(&url).timeout(Duration::from_secs(2)).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => said = answer.text().await.unwrap_or_default(),
                Err(error) => said = error.to_string(),
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("{part} is not ready: {said}; its log is in {}", self.folder.display())
    }

    /// Where logs and data are left.
    pub(super) fn keep(&self) -> &Path {
        &self.folder
    }

    /// Ends all processes, and takes away what they left, if asked.
    pub(super) fn finish(self, keep: bool) -> anyhow::Result<()> {
        let folder = self.folder.clone();
        drop(self);
        if !keep {
            std::fs::remove_dir_all(folder)?;
        }
        Ok(())
    }
}

fn children_flags(global: &Global, settings: Vec<String>, folder: &Path) -> Vec<String> {
    let mut flags = vec!["--data-dir".to_owned(), folder.join("data").display().to_string()];
    if let Some(config) = &global.config {
        flags.extend(["--config".to_owned(), config.display().to_string()]);
    }
    flags.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
    flags
}

/// A port that nobody listens on.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
