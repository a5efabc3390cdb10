//! `tally status`: what running processes say of themselves, in one table.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Serialize;

use crate::cli::{Output, StatusArgs};
use crate::client::Client;
use crate::output;

/// One process.
#[derive(Debug, Serialize)]
struct Status {
    url: String,
    ready: bool,
    problems: BTreeMap<String, String>,
    /// By partition, for a process that folds.
    partitions: BTreeMap<u32, PartitionStatus>,
    /// Totals of the whole process.
    totals: BTreeMap<&'static str, f64>,
}

/// One partition of a process that folds.
#[derive(Debug, Default, Serialize)]
struct PartitionStatus {
    lag_records: f64,
    next_offset: f64,
    counters: f64,
    stopped: bool,
}

#[derive(Debug, serde::Deserialize)]
struct Readiness {
    ready: bool,
    problems: BTreeMap<String, String>,
}

/// The totals that are shown, and the metrics that they come from.
const TOTALS: [(&str, &str); 5] = [
    ("events in", "tally_ingest_events_total"),
    ("events folded", "tally_folded_events_total"),
    ("rows written", "tally_flushed_rows_total"),
    ("flushes", "tally_flush_seconds_count"),
    ("dead letters", "tally_dead_letters_total"),
];

pub(crate) async fn run(client: Client, output: Output, args: &StatusArgs) -> anyhow::Result<()> {
    let mut all = vec![status(&client).await?];
    for url in &args.others {
        all.push(status(&Client::new(url)?).await?);
    }
    output::print(output, &all, |all| all.iter().map(show).collect::<Vec<_>>().join("\n\n"))
}

async fn status(client: &Client) -> anyhow::Result<Status> {
    let request = client.request(Method::GET, "/readyz");
    let url = request.try_clone().and_then(|request| Some(request.build().ok()?.url().origin()));
    let (_, text) = client.answer(request).await?;
    let readiness: Readiness = serde_json::from_str(&text)?;
    let metrics = client.text(client.request(Method::GET, "/metrics")).await?;
    let mut status = Status {
        url: url.map_or_else(String::new, |origin| origin.ascii_serialization()),
        ready: readiness.ready,
        problems: readiness.problems,
        partitions: BTreeMap::new(),
        totals: BTreeMap::new(),
    };
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        if let Some((label, _)) = TOTALS.iter().find(|(_, metric)| *metric == name) {
            status.totals.insert(label, value);
        }
        let partition = name
            .split_once("{partition=\"")
            .and_then(|(name, rest)| Some((name, rest.strip_suffix("\"}")?.parse().ok()?)));
        if let Some((name, partition)) = partition {
            let row: &mut PartitionStatus = status.partitions.entry(partition).or_default();
            match name {
                "tally_partition_lag_records" => row.lag_records = value,
                "tally_partition_next_offset" => row.next_offset = value,
                "tally_partition_counters" => row.counters = value,
                "tally_partition_stopped" => row.stopped = value > 0.0,
                _ => {}
            }
        }
    }
    Ok(status)
}

fn show(status: &Status) -> String {
    let ready = if status.ready { "ready" } else { "NOT READY" };
    let totals: Vec<String> =
        status.totals.iter().map(|(label, value)| format!("{label} {value}")).collect();
    let mut lines = vec![format!("{}  {ready}  {}", status.url, totals.join(", "))];
    lines.extend(status.problems.iter().map(|(part, why)| format!("  {part}: {why}")));
    if !status.partitions.is_empty() {
        let row = |(partition, row): (&u32, &PartitionStatus)| {
            let state = if row.stopped { "STOPPED" } else { "folding" };
            let numbers = [row.lag_records, row.next_offset, row.counters].map(|n| n.to_string());
            let mut cells = vec![partition.to_string(), state.to_owned()];
            cells.extend(numbers);
            cells
        };
        let rows: Vec<_> = status.partitions.iter().map(row).collect();
        let header = ["PARTITION", "STATE", "LAG", "NEXT OFFSET", "COUNTERS IN MEMORY"];
        lines.push(output::table(&header, &rows));
    }
    lines.join("\n")
}
