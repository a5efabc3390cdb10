//! What commands print: tables for people, JSON for programs; always on stdout.

use std::io::{ErrorKind, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::Output;

/// Prints a result: as JSON, or as the lines that `table` makes of it.
pub(crate) fn print<T: Serialize>(
    output: Output,
    result: &T,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    let text = match output {
        Output::Json => serde_json::to_string_pretty(result)?,
        Output::Table => table(result),
    };
    match writeln!(std::io::stdout(), "{}", text.trim_end_matches('\n')) {
        // Who reads no further has what it wanted.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Columns as wide as their widest cell, the header first.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A bar on stderr; hidden where that is no terminal.
pub(crate) fn progress(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(length);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
