//! One process of ours: started, watched through its log, killed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::root;

/// A running binary; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Where it serves HTTP.
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

/// The binary, built once if need be, in the profile of the tests.
pub(crate) fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package", "tally", "--bins"])
                .current_dir(root())
                .status();
            assert!(built.unwrap().success(), "the binary cannot be built");
            let tests = std::env::current_exe().unwrap();
            tests.parent().unwrap().parent().unwrap().join("tally")
        })
        .clone()
}

impl Process {
    /// Starts `tally` and waits until it serves.
    pub(crate) async fn start(args: &[&str], settings: &BTreeMap<String, String>) -> Self {
        let mut process = Self::spawn(args, settings);
        let started = Instant::now();
        while process.url.is_empty() {
            assert!(started.elapsed() < Duration::from_secs(60), "not serving: {}", process.log());
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("ended with {status}: {}", process.log());
            }
            let serving = process.messages("serving").pop();
            if let Some(address) = serving.as_ref().and_then(|line| line["address"].as_str()) {
                process.url = format!("http://{address}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process
    }

    /// Starts `tally` and waits until it has ended by itself.
    pub(crate) async fn run(
        args: &[&str],
        settings: &BTreeMap<String, String>,
    ) -> (ExitStatus, String) {
        let mut process = Self::spawn(args, settings);
        let started = Instant::now();
        loop {
            if let Some(status) = process.child.try_wait().unwrap() {
                return (status, process.log());
            }
            assert!(started.elapsed() < Duration::from_secs(90), "{args:?}: {}", process.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn spawn(args: &[&str], settings: &BTreeMap<String, String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(binary())
            .args(args)
            .env("TALLY__LISTEN", "127.0.0.1:0")
            .envs(settings)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Process { child, log, url: String::new(), _folder: folder }
    }

    /// Everything it printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The lines of its log with this message.
    pub(crate) fn messages(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Waits until its log has a line that `wanted` accepts.
    pub(crate) async fn wait_for_message(&self, wanted: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        loop {
            let log = self.log();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
            if lines.any(|line| wanted(&line)) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "not said: {log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.die();
    }

    /// kill -9, of a process that is to be replaced.
    pub(crate) fn die(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "does not stop: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- log of a process at {}:\n{}", self.url, self.log());
        }
    }
}
