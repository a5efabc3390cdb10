//! What documents and samples promise: README's commands are run, samples are parsed.

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::{Process, root};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The first block of shell commands after a heading or sentence.
fn block<'d>(document: &'d str, after: &str) -> &'d str {
    let rest = document.split_once(after).unwrap_or_else(|| panic!("README lacks '{after}'")).1;
    rest.split_once("```sh\n").unwrap().1.split_once("\n```").unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_do_what_it_says() {
    let readme = read("README.md");
    assert_eq!(block(&readme, "## Run it"), "cargo run --release");
    assert_eq!(block(&readme, "## Test it"), "./check");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap().to_owned();
    let settings = BTreeMap::from([("TALLY__DATA_DIR".to_owned(), data)]);
    let tally = Process::start(&["serve"], &settings).await;
    let binaries = std::env::current_exe().unwrap();
    let binaries = binaries.parent().unwrap().parent().unwrap().to_str().unwrap().to_owned();
    let commands = block(&readme, "count something")
        .replace("http://127.0.0.1:8080", &tally.url)
        .replace("cargo run --release --", "tally");
    let script = format!("set -euo pipefail\n{commands}\n");
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", format!("{binaries}:{}", std::env::var("PATH").unwrap()))
        .env("TALLY_URL", &tally.url)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains(r#""total":"6""#), "{printed}");
    assert!(printed.contains(r#""as_of":"#), "{printed}");
    assert!(tally.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_the_settings_is_right() {
    let sample = root().join("deploy/tally.toml");
    let arguments = ["config", "check", "--config", sample.to_str().unwrap()];
    let (status, log) = Process::run(&arguments, &BTreeMap::new()).await;
    assert!(status.success(), "{log}");
    // With every comment sign in front of a setting taken away, it is right as well.
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("tally.toml");
    let uncommented = read("deploy/tally.toml").replace("\n#", "\n");
    let settings = uncommented
        .lines()
        .filter(|line| line.starts_with('[') || line.contains(" = "))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&whole, &settings).unwrap();
    let arguments = ["config", "print", "-o", "json", "--config", whole.to_str().unwrap()];
    let (status, log) = Process::run(&arguments, &BTreeMap::new()).await;
    assert!(status.success(), "{log}\n{settings}");
    let json = &log[log.find('[').unwrap()..];
    let printed: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    // The one variable that the tests themselves set is left out.
    let from = |p: &&serde_json::Value| p["origin"].as_str().unwrap().starts_with("default");
    let missing: Vec<_> = printed.iter().filter(from).map(|p| p["key"].to_string()).collect();
    assert!(missing.is_empty(), "the sample does not show {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_the_compose_file_are_settings() {
    let compose = read("deploy/compose.yaml");
    let mut settings = BTreeMap::new();
    for line in compose.lines() {
        if let Some((name, value)) = line.trim().split_once(": ")
            && name.starts_with("TALLY__")
        {
            settings.insert(name.to_owned(), value.trim_matches('"').to_owned());
        }
    }
    assert!(settings.len() > 3, "{settings:?}");
    let (status, log) = Process::run(&["config", "check"], &settings).await;
    assert!(status.success(), "{log}");
}

#[test]
fn the_documents_link_to_what_exists() {
    for document in
        ["README.md", "ARCHITECTURE.md", "docs/operating.md", "docs/benchmarks.md", "docs/proof.md"]
    {
        let text = read(document);
        let folder = root().join(document).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap();
            if !path.is_empty() && !path.contains("://") {
                assert!(folder.join(path).exists(), "{document} links to {path}");
            }
        }
    }
}
