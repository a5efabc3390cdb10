//! The one thread that polls the log. Never waits for a store: a full channel holds it back.

use std::sync::mpsc as blocking;
use std::time::Duration;

use tally_log::{LogConsumer, Polled};
use tally_proto::{Offset, Partition};
#[cfg(not(feature = "simulation"))]
use tally_service::clock::sleep_blocking;
use tokio::sync::mpsc;

/// Polls in flight between the thread and the runner; each is at most about a mebibyte.
const POLLS_IN_FLIGHT: usize = 8;

/// How long one poll waits for records, and so a command for its turn.
const POLL_WAIT: Duration = Duration::from_millis(20);

/// After a poll that brought little, so long is waited before the next one: while many small
/// records come, a few polls carry them all, and a flush waits for a second anyway.
#[cfg(not(feature = "simulation"))]
const GATHER: Duration = Duration::from_millis(10);
#[cfg(not(feature = "simulation"))]
const LITTLE: usize = 500;

enum Command {
    Open(Partition, Offset),
    Pause(Partition),
    Resume(Partition),
    Report(Partition, Offset, Offset),
}

/// The runner's end of the polling thread; the thread ends when it is dropped.
pub(crate) struct Poller {
    commands: blocking::Sender<Command>,
    polls: mpsc::Receiver<Vec<Polled>>,
}

impl Poller {
    /// Starts the thread.
    pub(crate) fn start(consumer: Box<dyn LogConsumer>) -> std::io::Result<Self> {
        let (commands, inbox) = blocking::channel();
        let (outbox, polls) = mpsc::channel(POLLS_IN_FLIGHT);
        Polling { consumer, inbox, outbox }.start()?;
        Ok(Poller { commands, polls })
    }

    /// What the thread saw next; `None` if it died.
    pub(crate) async fn next(&mut self) -> Option<Vec<Polled>> {
        self.polls.recv().await
    }

    pub(crate) fn open(&self, partition: Partition, from: Offset) {
        self.send(Command::Open(partition, from));
    }

    pub(crate) fn pause(&self, partition: Partition) {
        self.send(Command::Pause(partition));
    }

    pub(crate) fn resume(&self, partition: Partition) {
        self.send(Command::Resume(partition));
    }

    pub(crate) fn report(&self, partition: Partition, next: Offset, needed: Offset) {
        self.send(Command::Report(partition, next, needed));
    }

    /// If the thread is gone, [`Poller::next`] says so.
    fn send(&self, command: Command) {
        self.commands.send(command).ok();
    }
}

/// The thread's end.
struct Polling {
    consumer: Box<dyn LogConsumer>,
    inbox: blocking::Receiver<Command>,
    outbox: mpsc::Sender<Vec<Polled>>,
}

impl Polling {
    #[cfg(not(feature = "simulation"))]
    fn start(mut self) -> std::io::Result<()> {
        let poll = move || {
            while self.obey() {
                let polled = self.consumer.poll(POLL_WAIT);
                if polled.is_empty() {
                    continue;
                }
                let is_little = records(&polled) < LITTLE;
                if self.outbox.blocking_send(polled).is_err() {
                    return;
                }
                if is_little {
                    sleep_blocking(GATHER);
                }
            }
        };
        std::thread::Builder::new().name("tally-poller".into()).spawn(poll).map(|_| ())
    }

    /// In simulated time there are no threads.
    #[cfg(feature = "simulation")]
    fn start(mut self) -> std::io::Result<()> {
        tokio::spawn(async move {
            while self.obey() {
                let polled = self.consumer.poll(Duration::ZERO);
                if !polled.is_empty() && self.outbox.send(polled).await.is_err() {
                    return;
                }
                tally_service::clock::sleep(POLL_WAIT).await;
            }
        });
        Ok(())
    }

    /// Carries out what was commanded; says whether to go on.
    fn obey(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => carry_out(&mut *self.consumer, command),
                Err(blocking::TryRecvError::Empty) => return true,
                Err(blocking::TryRecvError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(not(feature = "simulation"))]
fn records(polled: &[Polled]) -> usize {
    let records = polled.iter().map(|polled| match polled {
        Polled::Records(batch) => batch.records.len(),
        _ => 0,
    });
    records.sum()
}

fn carry_out(consumer: &mut dyn LogConsumer, command: Command) {
    match command {
        Command::Open(partition, from) => consumer.open(partition, from),
        Command::Pause(partition) => consumer.pause(partition),
        Command::Resume(partition) => consumer.resume(partition),
        Command::Report(partition, next, needed) => consumer.report(partition, next, needed),
    }
}
