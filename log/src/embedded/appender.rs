//! The appending thread: what waits goes out as one batch and one sync.

use std::sync::mpsc as blocking;
use std::sync::{Arc, Weak};

use tally_proto::{Offset, Partition};
use tally_service::clock::SharedClock;
use tokio::sync::oneshot;

use super::Shared;
use super::segments::Placed;
use crate::port::{AppendError, LogError, NewRecord};

/// Most records and bytes of one sync: bounds the wait of the first of them.
const MOST_RECORDS: usize = 4_096;
const MOST_BYTES: usize = 16 << 20;

/// One record that waits to be appended.
pub(super) struct Append {
    pub(super) partition: Partition,
    pub(super) record: NewRecord,
    pub(super) reply: oneshot::Sender<Result<Offset, AppendError>>,
}

/// Starts the thread; it ends when every sender is gone.
pub(super) fn start(
    shared: Arc<Shared>,
    inbox: blocking::Receiver<Append>,
    clock: SharedClock,
) -> std::io::Result<()> {
    // Weak: consumers may outlive the log, but the thread must not hold the folder for itself.
    let shared: Weak<Shared> = Arc::downgrade(&shared);
    std::thread::Builder::new().name("tally-appender".into()).spawn(move || {
        while let Ok(first) = inbox.recv() {
            let Some(shared) = shared.upgrade() else { return };
            let appends = gather(first, &inbox);
            append(&shared, appends, clock.unix_ms());
        }
    })?;
    Ok(())
}

/// The first, and what came while the former batch was written.
fn gather(first: Append, inbox: &blocking::Receiver<Append>) -> Vec<Append> {
    let mut bytes = first.record.value.len();
    let mut appends = vec![first];
    while appends.len() < MOST_RECORDS && bytes < MOST_BYTES {
        let Ok(append) = inbox.try_recv() else { break };
        bytes += append.record.value.len();
        appends.push(append);
    }
    appends
}

fn append(shared: &Shared, appends: Vec<Append>, now_ms: i64) {
    let records = appends.iter().map(|append| (append.partition, &append.record));
    let placed = shared.segments.lock().place(records, now_ms);
    let written = write(shared, &placed, now_ms);
    shared.appended.notify_all();
    for (append, placed) in appends.into_iter().zip(placed) {
        let answer = match (placed, &written) {
            (None, _) => Err(AppendError::Refused(super::no_such(append.partition).to_string())),
            (Some(placed), Ok(())) => Ok(placed.offset),
            (Some(_), Err(error)) => Err(AppendError::InDoubt(error.to_string())),
        };
        append.reply.send(answer).ok(); // who does not wait any more does not hear of it
    }
    if let Err(error) = shared.segments.lock().keep_house(now_ms) {
        tracing::warn!(%error, "the embedded log cannot keep its retention");
    }
}

/// Writes and syncs the records, and lets consumers see them. Only this thread writes, so the
/// places stay theirs while the lock is not held.
fn write(shared: &Shared, placed: &[Option<Placed>], now_ms: i64) -> Result<(), LogError> {
    let batch = shared.segments.lock().batch(placed.iter().flatten())?;
    if let Err(error) = batch.commit() {
        if matches!(error, fjall::Error::Poisoned) {
            shared.broken.stop();
        }
        return Err(error.into());
    }
    shared.segments.lock().publish(placed.iter().flatten(), now_ms);
    Ok(())
}
