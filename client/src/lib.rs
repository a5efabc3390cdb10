//! Sends events to Tally from Rust.
//!
//! Events are gathered into batches and sent again until they are answered. Each gets an id, so that
//! one which is sent twice is counted once (within the server's retry window, an hour). Plain deltas
//! on one counter within a batch are added up before they are sent.
//!
//! ```no_run
//! # async fn example() -> Result<(), tally_client::SendError> {
//! use tally_client::{Client, Event};
//!
//! let client = Client::builder("http://127.0.0.1:8080").build();
//! client.send(Event::add("view", "video:123")).await?; // waits for room only
//! let like = client.send(Event::set("like", "video:123", "user:9")).await?;
//! like.durable().await?; // the log has it
//! client.flush().await; // the log has all of it
//! # Ok(())
//! # }
//! ```
//!
//! `examples/count.rs` is a whole program.
#![allow(clippy::disallowed_methods)] // a producer's process has no clock of ours

mod batch;
mod driver;
mod event;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub use driver::SendError;
pub use event::Event;

use driver::{Command, Driver, Settings};

/// Sends events. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
}

/// How a client sends.
#[derive(Debug, Clone)]
pub struct Builder {
    settings: Settings,
    queue: usize,
}

/// An event on its way.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<(), SendError>>);

impl Builder {
    /// Events of one request, at most. Default 500.
    pub fn batch(mut self, events: usize) -> Self {
        self.settings.batch = events.clamp(1, 20_000);
        self
    }

    /// How long a batch waits for more events; zero sends what is there. Default 5 ms.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.linger = linger;
        self
    }

    /// Requests in flight. Default 1, which keeps events in their order: with more, a like and its
    /// unlike may change places.
    pub fn in_flight(mut self, requests: usize) -> Self {
        self.settings.in_flight = requests.max(1);
        self
    }

    /// Events that wait to be sent, at most; [`Client::send`] waits for room. Default 100,000.
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.max(1);
        self
    }

    /// For how long a batch is sent again and again; keep it below the server's retry window, or
    /// events may count twice. Default 10 minutes.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.settings.give_up_after = time;
        self
    }

    /// Whether plain deltas on one counter are added up within a batch. Default yes.
    pub fn combine(mut self, combine: bool) -> Self {
        self.settings.combine = combine;
        self
    }

    /// Starts the client. Must be called within a tokio runtime.
    pub fn build(self) -> Client {
        let (commands, inbox) = mpsc::channel(self.queue);
        tokio::spawn(Driver::new(self.settings).run(inbox));
        Client { commands }
    }
}

impl Client {
    /// A client of an ingest, or of `tally serve`, at a URL such as `http://127.0.0.1:8080`.
    pub fn builder(url: &str) -> Builder {
        Builder { settings: Settings::new(url), queue: 100_000 }
    }

    /// Queues an event; waits while the queue is full. The receipt may be dropped.
    pub async fn send(&self, event: Event) -> Result<Receipt, SendError> {
        let (done, receipt) = oneshot::channel();
        let sent = self.commands.send(Command::Send(event, done)).await;
        sent.map_err(|_| SendError::Closed)?;
        Ok(Receipt(receipt))
    }

    /// Waits until everything that was queued before is in the log, or was refused.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.commands.send(Command::Flush(done)).await.is_ok() {
            flushed.await.ok();
        }
    }
}

impl Receipt {
    /// Waits until the log has the event.
    pub async fn durable(self) -> Result<(), SendError> {
        self.0.await.unwrap_or(Err(SendError::Closed))
    }
}
