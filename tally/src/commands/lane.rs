//! `tally lane next`.

use std::sync::Arc;

use serde::Serialize;
use tally_aggregator::lane::{self, Repair};
use tally_proto::{CounterId, Kinds, Partition};
use tally_service::clock::SystemClock;

use crate::cli::Output;
use crate::output;
use crate::settings::Settings;
use crate::wiring;

#[derive(Debug, Serialize)]
struct Answer {
    counter: String,
    partition: u32,
    lane: u8,
    as_of: u64,
    partial: i64,
}

pub(crate) async fn next(
    settings: &Settings,
    output: Output,
    partition: Partition,
    counter: CounterId,
    total: Option<i64>,
) -> anyhow::Result<()> {
    let backends = wiring::open(settings, SystemClock::shared()).await?;
    let row = lane::next(Repair {
        log: backends.log.clone(),
        store: backends.store.clone(),
        epoch: backends.epoch,
        kinds: Arc::new(Kinds::built_in()),
        partition,
        counter,
        total,
    })
    .await?;
    let answer = Answer {
        counter: row.counter.to_string(),
        partition: partition.0,
        lane: row.lane.0,
        as_of: row.fact.as_of.0,
        partial: row.fact.total,
    };
    output::print(output, &answer, |answer| {
        format!(
            "{} stands at {} in partition {}, as of offset {}, in lane {}",
            answer.counter, answer.partial, answer.partition, answer.as_of, answer.lane
        )
    })
}
