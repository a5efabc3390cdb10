//! The queue of a partition: sends at once when nothing is in flight, gathers while something is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tally_log::{AppendError, EventLog, NewRecord};
use tally_proto::{ContentType, Event, Offset, Partition};
use tally_service::clock::SharedClock;
use tally_service::health::Health;
use tally_service::mutant;
use tokio::sync::{Notify, oneshot};

use crate::accumulator::{Accumulator, Ready};
use crate::budget::Room;
use crate::metrics::IngestMetrics;

/// What became of a record.
pub(crate) type Outcome = Result<Offset, AppendError>;

/// A request that waits for a record, and the room that its events take until then.
#[derive(Debug)]
pub(crate) struct Waiting {
    reply: oneshot::Sender<Outcome>,
    _room: Room,
}

/// One partition's queue. Ends when it is dropped.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    task: tokio::task::AbortHandle,
}

#[derive(Default)]
struct Shared {
    accumulator: Mutex<Accumulator<Waiting>>,
    /// Events that the log does not have yet.
    waiting: AtomicU64,
    filled: Notify,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a queue appends with.
#[derive(Clone)]
pub(crate) struct Sink {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) clock: SharedClock,
    pub(crate) health: Health,
    pub(crate) metrics: IngestMetrics,
}

impl Queue {
    pub(crate) fn start(partition: Partition, sink: Sink) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(drain(partition, sink, shared.clone())).abort_handle();
        Queue { shared, task }
    }

    /// How many events the log does not have yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Queues events of one request; one answer comes for each record that they go into.
    pub(crate) fn push<'e>(
        &self,
        events: impl IntoIterator<Item = Event<'e>>,
        room: &mut Room,
    ) -> Vec<oneshot::Receiver<Outcome>> {
        let mut answers = Vec::with_capacity(1);
        self.shared.accumulator.lock().push(events, |events| {
            self.shared.waiting.fetch_add(events as u64, Ordering::Relaxed);
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            Waiting { reply, _room: room.split(events) }
        });
        self.shared.filled.notify_one();
        answers
    }
}

/// Appends record after record, one in flight.
async fn drain(partition: Partition, sink: Sink, shared: Arc<Shared>) {
    loop {
        let ready = shared.accumulator.lock().flush();
        match ready {
            Some(ready) => {
                let events = ready.events;
                append(partition, &sink, ready).await;
                shared.waiting.fetch_sub(events, Ordering::Relaxed);
            }
            None => shared.filled.notified().await,
        }
    }
}

async fn append(partition: Partition, sink: &Sink, ready: Ready<Waiting>) {
    let started = sink.clock.monotonic();
    let record = NewRecord {
        key: bytes::Bytes::new(), // many route keys in one record
        value: ready.value,
        content_type: ContentType::Batch,
    };
    let mut outcome = sink.log.append(partition, record.clone()).await;
    while mutant!("retry-in-doubt") && matches!(outcome, Err(AppendError::InDoubt(_))) {
        outcome = sink.log.append(partition, record.clone()).await;
    }
    let took = sink.clock.monotonic().saturating_sub(started);
    sink.metrics.append_seconds.observe(took.as_secs_f64());
    match &outcome {
        Ok(_) => {
            sink.metrics.records.inc();
            sink.metrics.accepted.inc_by(ready.events);
        }
        Err(_) => {
            sink.metrics.in_doubt.inc_by(ready.events);
        }
    }
    sink.health.report("log", outcome.as_ref().err());
    for waiting in ready.waiting {
        waiting.reply.send(outcome.clone()).ok(); // who went away does not hear of it
    }
}
