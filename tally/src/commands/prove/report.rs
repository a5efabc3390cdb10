//! The report: what was done, and what was found.

use std::collections::BTreeMap;

use serde::Serialize;

use super::children::Part;
use super::judge::Compared;
use crate::cli::ProveArgs;
use crate::output;

/// Wrong totals that are named.
const NAMED: usize = 10;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    on: &'static str,
    seconds: u64,
    events_a_second: u64,
    /// How often each fault struck which process.
    faults: BTreeMap<String, u64>,
    requests: u64,
    events: u64,
    in_doubt: usize,
    in_doubt_taken: usize,
    counters: usize,
    missing: i64,
    surplus: i64,
    wrong: Vec<String>,
    caught_up_after_ms: u128,
}

impl Report {
    pub(super) fn new(args: &ProveArgs, is_cluster: bool) -> Self {
        Report {
            on: if is_cluster { "Kafka and Cassandra" } else { "the embedded log and store" },
            seconds: args.duration.as_secs(),
            events_a_second: args.rate,
            faults: BTreeMap::new(),
            requests: 0,
            events: 0,
            in_doubt: 0,
            in_doubt_taken: 0,
            counters: 0,
            missing: 0,
            surplus: 0,
            wrong: Vec::new(),
            caught_up_after_ms: 0,
        }
    }

    pub(super) fn fault(&mut self, what: &str, part: Part) {
        eprintln!("{part}: {what}");
        *self.faults.entry(format!("{part}: {what}")).or_default() += 1;
    }

    pub(super) fn judge(&mut self, compared: Compared) {
        self.requests = compared.requests;
        self.events = compared.events;
        self.in_doubt = compared.doubts;
        self.in_doubt_taken = compared.doubts_taken;
        self.counters = compared.counters;
        self.missing = compared.missing;
        self.surplus = compared.surplus;
        self.wrong = compared.wrong;
        self.caught_up_after_ms = compared.caught_up_after.as_millis();
    }

    /// Whether every total is equal to the truth; where nothing was counted, nothing is shown.
    pub(super) fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.events > 0 && self.counters > 0
    }

    pub(super) fn table(&self) -> String {
        let mut rows = vec![
            vec!["on".into(), self.on.into()],
            vec![
                "load".into(),
                format!("{} events/s for {} s", self.events_a_second, self.seconds),
            ],
            vec![
                "acknowledged".into(),
                format!("{} events, {} requests", self.events, self.requests),
            ],
            vec![
                "not answered".into(),
                format!(
                    "{} requests, of which {} were in the log",
                    self.in_doubt, self.in_doubt_taken
                ),
            ],
        ];
        rows.extend(self.faults.iter().map(|(fault, n)| vec![fault.clone(), format!("{n} times")]));
        rows.push(vec!["caught up after".into(), format!("{} ms", self.caught_up_after_ms)]);
        rows.push(vec!["counters compared".into(), self.counters.to_string()]);
        rows.push(vec!["missing".into(), self.missing.to_string()]);
        rows.push(vec!["too much".into(), self.surplus.to_string()]);
        let mut lines = vec![output::table(&["", ""], &rows)];
        lines.extend(self.wrong.iter().take(NAMED).map(|wrong| format!("  {wrong}")));
        lines.push(if self.is_right() {
            "every total is equal to the truth".into()
        } else {
            format!("{} totals are WRONG", self.wrong.len())
        });
        lines.join("\n").trim_start().to_owned()
    }
}
