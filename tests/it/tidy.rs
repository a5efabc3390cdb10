//! The rules of the house, held by a test: who may know whom, and how long a file may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::root;

const PACKAGES: [&str; 9] =
    ["proto", "service", "log", "store", "ingest", "aggregator", "reader", "tally", "client"];

/// All Rust files below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The files of the product, tests excepted, by their path from the root.
fn product() -> BTreeMap<String, String> {
    let sources = PACKAGES.iter().flat_map(|package| rust_files(&root().join(package).join("src")));
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let sources: BTreeMap<String, String> =
        sources.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect();
    assert!(sources.len() > 60, "where has the product gone?");
    sources
}

/// The part of a file that is no test.
fn without_tests(source: &str) -> &str {
    source.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
}

#[test]
fn dependencies_go_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = [
        ("proto", &[][..]),
        ("service", &[]),
        ("log", &["proto", "service"]),
        ("store", &["proto", "service"]),
        ("ingest", &["log", "proto", "service", "store"]),
        ("aggregator", &["log", "proto", "service", "store"]),
        ("reader", &["proto", "service", "store"]),
        ("client", &[]),
        ("tally", &["aggregator", "ingest", "log", "proto", "reader", "service", "store"]),
    ]
    .into();
    for package in PACKAGES {
        let manifest = std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        for dependency in dependencies.keys().filter_map(|name| name.strip_prefix("tally-")) {
            let known = allowed[package].contains(&dependency);
            assert!(known, "{package} must not depend on {dependency}");
        }
    }
}

#[test]
fn only_its_adapter_names_a_client_library() {
    for (path, source) in product() {
        for (library, home) in [("rdkafka", "log/src/kafka"), ("scylla", "store/src/cql")] {
            let uses = source.contains(&format!("use {library}"))
                || source.contains(&format!("{library}::"));
            assert!(!uses || path.starts_with(home), "{path} names {library}");
        }
    }
}

#[test]
fn only_wiring_picks_adapters() {
    for (path, source) in product() {
        let picks = ["KafkaLog::", "EmbeddedLog::", "CqlStore::", "EmbeddedStore::"]
            .iter()
            .any(|adapter| without_tests(&source).contains(adapter));
        let home = path.starts_with("log/") || path.starts_with("store/");
        assert!(!picks || home || path == "tally/src/wiring.rs", "{path} picks an adapter");
    }
}

#[test]
fn the_pure_parts_know_no_clock_and_no_async() {
    let pure = [
        "proto/src/",
        "aggregator/src/engine",
        "aggregator/src/progress.rs",
        "ingest/src/accumulator.rs",
        "reader/src/reduce.rs",
    ];
    let mut seen = 0;
    for (path, source) in product() {
        if !pure.iter().any(|pure| path.starts_with(pure)) {
            continue;
        }
        seen += 1;
        for word in ["async fn", ".await", "tokio::", "Instant", "SystemTime", "clock::", "std::fs"]
        {
            assert!(!without_tests(&source).contains(word), "{path} has '{word}'");
        }
    }
    assert!(seen > 20);
}

#[test]
fn the_runner_alone_selects() {
    for (path, source) in product() {
        let selects = source.contains("tokio::select!") || source.contains("select! {");
        let home = ["aggregator/src/runner.rs", "service/src/run.rs", "service/src/http/server.rs"];
        assert!(!selects || home.contains(&path.as_str()), "{path} selects");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, source) in product() {
        assert!(source.starts_with("//! "), "{path} does not open with a sentence");
    }
}

#[test]
fn files_are_short() {
    let mut lengths: Vec<(usize, String)> = product()
        .into_iter()
        .map(|(path, source)| (without_tests(&source).lines().count(), path))
        .collect();
    lengths.sort();
    let sum: usize = lengths.iter().map(|(length, _)| length).sum();
    let mean = sum / lengths.len();
    assert!(mean <= 150, "the mean file has {mean} lines");
    let (ninth, _) = &lengths[lengths.len() * 9 / 10];
    assert!(*ninth <= 300, "a tenth of the files has more than {ninth} lines");
    let (longest, path) = lengths.last().unwrap();
    assert!(*longest <= 500, "{path} has {longest} lines: two subjects or more");
}
