//! The driver: gathers events, sends batches, sends them again until they are answered.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::batch::{Batch, Done};
use crate::event::Event;

const FIRST_RETRY: Duration = Duration::from_millis(50);
const MOST_RETRY: Duration = Duration::from_secs(5);

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(30);

/// Why an event is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The server refuses it; sending it again changes nothing.
    #[error("refused ({code}): {detail}")]
    Refused {
        /// The stable code, such as `unknown_kind`.
        code: String,
        /// What to do about it.
        detail: String,
    },
    /// Nobody answered in time: it may be counted or not.
    #[error("no answer in time, the event may be counted or not: {0}")]
    GaveUp(String),
    /// The client has ended.
    #[error("the client has ended")]
    Closed,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    url: String,
    pub(crate) batch: usize,
    pub(crate) linger: Duration,
    pub(crate) in_flight: usize,
    pub(crate) give_up_after: Duration,
    pub(crate) combine: bool,
}

impl Settings {
    pub(crate) fn new(url: &str) -> Self {
        Settings {
            url: format!("{}/v1/events", url.trim_end_matches('/')),
            batch: 500,
            linger: Duration::from_millis(5),
            in_flight: 1,
            give_up_after: Duration::from_secs(600),
            combine: true,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Command {
    Send(Event, Done),
    Flush(oneshot::Sender<()>),
}

/// The answer to a write, as far as it is of use here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    rejected: Vec<Rejected>,
    code: String,
    detail: String,
}

#[derive(Debug, Deserialize)]
struct Rejected {
    index: usize,
    code: String,
    detail: String,
}

pub(crate) struct Driver {
    settings: Settings,
    http: reqwest::Client,
    permits: Arc<Semaphore>,
    /// Begins every id of this client; no other has it.
    prefix: String,
    ids: u64,
}

impl Driver {
    pub(crate) fn new(settings: Settings) -> Self {
        Driver {
            permits: Arc::new(Semaphore::new(settings.in_flight)),
            http: reqwest::Client::new(),
            prefix: uuid::Uuid::new_v4().simple().to_string(),
            ids: 0,
            settings,
        }
    }

    /// Runs until every client is dropped; what was queued is sent before.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        while let Some(command) = inbox.recv().await {
            match command {
                Command::Flush(done) => self.flush(done).await,
                Command::Send(event, done) => {
                    let (events, flush) = self.gather((event, done), &mut inbox).await;
                    self.send(events).await;
                    if let Some(done) = flush {
                        self.flush(done).await;
                    }
                }
            }
        }
    }

    /// More events, until the batch is full, its time is over, or somebody wants to see it sent.
    /// While all requests are in flight a batch goes on gathering: it could not be sent anyway.
    async fn gather(
        &self,
        first: (Event, Done),
        inbox: &mut mpsc::Receiver<Command>,
    ) -> (Vec<(Event, Done)>, Option<oneshot::Sender<()>>) {
        let mut events = vec![first];
        let mut deadline = Instant::now() + self.settings.linger;
        while events.len() < self.settings.batch {
            match timeout_at(deadline, inbox.recv()).await {
                Ok(Some(Command::Send(event, done))) => events.push((event, done)),
                Ok(Some(Command::Flush(done))) => return (events, Some(done)),
                Ok(None) => break,
                Err(_) if self.permits.available_permits() > 0 => break,
                Err(_) => deadline = Instant::now() + Duration::from_millis(1),
            }
        }
        (events, None)
    }

    async fn send(&mut self, events: Vec<(Event, Done)>) {
        let (ids, prefix) = (&mut self.ids, &self.prefix);
        let batch = Batch::new(events, self.settings.combine, || {
            *ids = ids.wrapping_add(1);
            format!("{prefix}-{ids:x}")
        });
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        let (http, settings) = (self.http.clone(), self.settings.clone());
        tokio::spawn(async move {
            deliver(&http, &settings, batch).await;
            drop(permit);
        });
    }

    /// All requests have ended when all permits are back.
    async fn flush(&self, done: oneshot::Sender<()>) {
        let all = u32::try_from(self.settings.in_flight).unwrap_or(u32::MAX);
        drop(self.permits.acquire_many(all).await);
        done.send(()).ok();
    }
}

/// Sends a batch until it is answered, always the same bytes.
async fn deliver(http: &reqwest::Client, settings: &Settings, batch: Batch) {
    let body = batch.body();
    let give_up_at = Instant::now() + settings.give_up_after;
    let mut wait = FIRST_RETRY;
    loop {
        let why = match post(http, &settings.url, body.clone()).await {
            Ok((status, answer)) if !is_retryable(status) => {
                return batch.settle(|index| outcome(status, &answer, index));
            }
            Ok((status, answer)) => format!("{status}: {}", answer.detail),
            Err(error) => error.to_string(),
        };
        if Instant::now() + wait >= give_up_at {
            return batch.settle(|_| Err(SendError::GaveUp(why.clone())));
        }
        sleep(wait).await;
        wait = wait.saturating_mul(2).min(MOST_RETRY);
    }
}

async fn post(
    http: &reqwest::Client,
    url: &str,
    body: String,
) -> reqwest::Result<(StatusCode, Answer)> {
    let request = http.post(url).header(CONTENT_TYPE, "application/x-ndjson").timeout(ANSWER);
    let response = request.body(body).send().await?;
    let status = response.status();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or_default()))
}

/// Whether the same batch may be taken later.
fn is_retryable(status: StatusCode) -> bool {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT];
    status.is_server_error() || busy.contains(&status)
}

/// What became of one event of an answered batch.
fn outcome(status: StatusCode, answer: &Answer, index: usize) -> Result<(), SendError> {
    let refused = |code: &str, detail: &str| {
        Err(SendError::Refused { code: code.to_owned(), detail: detail.to_owned() })
    };
    match answer.rejected.iter().find(|rejected| rejected.index == index) {
        Some(rejected) => refused(&rejected.code, &rejected.detail),
        None if status.is_success() => Ok(()),
        None => refused(&answer.code, &answer.detail),
    }
}
