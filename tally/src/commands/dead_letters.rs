//! `tally dead-letters list | show`.

use anyhow::bail;
use reqwest::Method;
use tally_proto::api::{DeadLetterAnswer, DeadLettersAnswer};

use crate::cli::Output;
use crate::client::Client;
use crate::output;

pub(crate) async fn list(
    client: &Client,
    output: Output,
    days: u16,
    limit: usize,
) -> anyhow::Result<()> {
    let answer = fetch(client, days, limit).await?;
    output::print(output, &answer, |answer| {
        if answer.dead_letters.is_empty() {
            return "no dead letters".to_owned();
        }
        let row = |letter: &DeadLetterAnswer| {
            vec![
                letter.partition.to_string(),
                letter.offset.to_string(),
                letter.index.to_string(),
                letter.appended_at.clone(),
                letter.code.to_string(),
                letter.reason.to_string(),
            ]
        };
        let rows: Vec<_> = answer.dead_letters.iter().map(row).collect();
        output::table(&["PARTITION", "OFFSET", "INDEX", "APPENDED AT", "CODE", "REASON"], &rows)
    })
}

pub(crate) async fn show(
    client: &Client,
    output: Output,
    place: (u32, u64, u32),
    days: u16,
) -> anyhow::Result<()> {
    let answer = fetch(client, days, usize::MAX).await?;
    let is_it =
        |letter: &&DeadLetterAnswer| (letter.partition, letter.offset, letter.index) == place;
    let Some(letter) = answer.dead_letters.iter().find(is_it) else {
        let (partition, offset, index) = place;
        bail!("no dead letter {partition} {offset} {index} within {days} days");
    };
    output::print(output, letter, |letter| {
        format!(
            "{}: {}\nappended at {}\nkey   {}\nvalue {}",
            letter.code,
            letter.reason,
            letter.appended_at,
            letter.key.as_deref().unwrap_or("(not text)"),
            letter.value.as_deref().unwrap_or("(not text; -o json has it in base64)")
        )
    })
}

async fn fetch(client: &Client, days: u16, limit: usize) -> anyhow::Result<DeadLettersAnswer> {
    let request = client
        .request(Method::GET, "/v1/dead-letters")
        .query(&[("days", days.to_string()), ("limit", limit.min(10_000).to_string())]);
    client.json(request).await
}
