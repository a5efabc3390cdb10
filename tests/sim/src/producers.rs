//! Who writes: clients of ingest that retry and give up, and producers that know no ingest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tally_ingest::Ingest;
use tally_log::NewRecord;
use tally_proto::limits::MAX_DELTA;
use tally_proto::{ContentType, CounterId, Event, Kinds, Partition, RawEvent};
use tokio::time::{sleep, timeout};

use crate::dice::Dice;
use crate::log::SimLog;
use crate::plan::LARGE_WINDOW;

/// What is counted most of the time, the first ones most.
pub(crate) const SUBJECTS: &[&str] = &["video:1", "video:2", "post:3", "post:4", "a", "b"];

/// What nobody counted before.
pub(crate) const NEW_SUBJECTS: &[&str] = &["new:1", "new:2", "new:3", "new:4"];

/// What clients know of one counter that they only ever count up by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    /// Events that were sent; again and again, if nothing tells that they are the same.
    pub(crate) sent: i64,
    /// Events that were answered with success.
    pub(crate) acked: i64,
}

/// The accounts of all clients, by subject; of kind `reply`.
pub(crate) type Accounts = Arc<Mutex<BTreeMap<String, Account>>>;

/// What a client works with.
#[derive(Clone)]
pub(crate) struct Clients {
    /// Chance.
    pub(crate) dice: Dice,
    /// The ingest that is alive at present.
    pub(crate) ingest: Arc<Mutex<Option<Arc<Ingest>>>>,
    /// What they know.
    pub(crate) accounts: Accounts,
    /// The kinds that are declared.
    pub(crate) kinds: Arc<Kinds>,
    /// What they count.
    pub(crate) subjects: &'static [&'static str],
    /// Whether actors like things, too.
    pub(crate) likes: bool,
    /// Whether events have ids.
    pub(crate) ids: bool,
    /// Whether counters are reset, of kinds that keep no account.
    pub(crate) resets: bool,
}

/// Who likes things.
pub(crate) const ACTORS: &[&str] = &["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"];

impl Clients {
    /// Sends requests over a time; each is tried a few times.
    pub(crate) async fn run(self, requests: u64, time: Duration, overflows: bool) {
        let pause = u64::try_from(time.as_millis()).unwrap_or(0) / requests.max(1);
        let burst = self.dice.below(requests);
        for request in 0..requests {
            sleep(self.dice.millis(0, pause * 2)).await;
            if self.resets && self.dice.chance(150) {
                self.reset().await;
            }
            let events = if overflows && request == burst { Self::huge() } else { self.request() };
            let mut is_booked = false;
            for _ in 0..self.dice.between(1, 3) {
                if self.send(&events, &mut is_booked).await {
                    break;
                }
            }
        }
    }

    fn request(&self) -> Vec<String> {
        let event = || {
            let subject = self.subject();
            if self.likes && self.dice.chance(500) {
                let (actor, op) =
                    (self.dice.pick(ACTORS), self.dice.pick(&["set", "set", "unset"]));
                let id = self.id();
                return format!(
                    r#"{{"kind":"like","subject":"{subject}","actor":"{actor}","op":"{op}"{id}}}"#
                );
            }
            match self.dice.below(10) {
                0..4 => format!(r#"{{"kind":"reply","subject":"{subject}"{}}}"#, self.new_id()),
                4 => format!(r#"{{"kind":"view","subject":"{subject}","namespace":"n"}}"#),
                _ => {
                    let (delta, id) = (*self.dice.pick(&[1, 1, 1, -1, -3, 7]), self.id());
                    format!(r#"{{"kind":"view","subject":"{subject}","delta":{delta}{id}}}"#)
                }
            }
        };
        (0..self.dice.between(1, 8)).map(|_| event()).collect()
    }

    /// An id that others use as well, or none.
    fn id(&self) -> String {
        let id = self.dice.below(30);
        if self.ids && self.dice.chance(600) { format!(r#","id":"{id}""#) } else { String::new() }
    }

    /// An id that nobody else uses, or none.
    fn new_id(&self) -> String {
        let (a, b) = (self.dice.below(1 << 40), self.dice.below(1 << 40));
        if self.ids { format!(r#","id":"{a}-{b}""#) } else { String::new() }
    }

    /// Begins a counter anew, and does not wait for long.
    async fn reset(&self) {
        let Some(ingest) = self.ingest.lock().clone() else { return };
        let kind = if self.likes { *self.dice.pick(&["view", "like"]) } else { "view" };
        let counter = CounterId::new("default", kind, self.subject()).expect("a name");
        let patience = self.dice.millis(10, 1_500);
        let (counter, resetting) = (counter.clone(), async move { ingest.reset(&counter).await });
        tracing::debug!(%counter, "reset");
        timeout(patience, resetting).await.ok();
    }

    /// So much for the counter that is asked for most that a little more is too much.
    fn huge() -> Vec<String> {
        let subject = SUBJECTS[0];
        let event =
            |delta: i64| format!(r#"{{"kind":"view","subject":"{subject}","delta":{delta}}}"#);
        let mut events = vec![event(MAX_DELTA); 1_024];
        events.push(event(1_020)); // 3 below the most that 64 bits hold
        events
    }

    /// The first ones are asked for most.
    fn subject(&self) -> &'static str {
        let most = self.dice.between(1, self.subjects.len() as u64);
        self.dice.pick::<&str>(&self.subjects[..usize::try_from(most).unwrap_or(1)])
    }

    /// Sends one request; says whether it was answered with success.
    async fn send(&self, events: &[String], is_booked: &mut bool) -> bool {
        let Some(ingest) = self.ingest.lock().clone() else {
            sleep(Duration::from_millis(20)).await;
            return false;
        };
        let raw: Vec<RawEvent<'_>> =
            events.iter().map(|event| RawEvent::parse(event).expect("an event")).collect();
        let checked: Vec<Event<'_>> =
            raw.iter().map(|raw| raw.check(&self.kinds).expect("a good event")).collect();
        let Ok(receipt) = ingest.push(&checked) else { return false };
        drop(ingest);
        // Where ids are never forgotten, sending it again adds nothing.
        let adds_nothing = self.ids && self.kinds.retry_window() == LARGE_WINDOW;
        if !std::mem::replace(is_booked, adds_nothing) {
            self.book(&checked, |account| account.sent += 1);
        }
        let patience = self.dice.millis(10, 1_500);
        let is_acked = matches!(timeout(patience, receipt.durable()).await, Ok(Ok(_)));
        if is_acked {
            self.book(&checked, |account| account.acked += 1);
        }
        is_acked
    }

    fn book(&self, events: &[Event<'_>], entry: impl Fn(&mut Account)) {
        let mut accounts = self.accounts.lock();
        for event in events.iter().filter(|event| &*event.kind.name == "reply") {
            entry(accounts.entry(event.subject.to_owned()).or_default());
        }
    }
}

/// Appends records that no ingest has checked, good ones and bad ones.
pub(crate) async fn foreign(
    log: SimLog,
    dice: Dice,
    records: u64,
    time: Duration,
    likes: bool,
    ids: bool,
) {
    let pause = u64::try_from(time.as_millis()).unwrap_or(0) / records.max(1);
    let partitions: Vec<Partition> = log.partitions().collect();
    for _ in 0..records {
        sleep(dice.millis(0, pause * 2)).await;
        let (content_type, value) = record(&dice, likes, ids);
        let record = NewRecord { key: Bytes::from_static(b"key"), value, content_type };
        log.append_now(*dice.pick(&partitions), record);
    }
}

fn record(dice: &Dice, likes: bool, ids: bool) -> (ContentType, Bytes) {
    let json = |text: &str| (ContentType::Json, Bytes::copy_from_slice(text.as_bytes()));
    if likes && dice.chance(300) {
        let (subject, actor) = (dice.pick(SUBJECTS), dice.pick(ACTORS)); // mostly misrouted
        return json(&format!(r#"{{"kind":"like","subject":"{subject}","actor":"{actor}"}}"#));
    }
    if ids && dice.chance(400) {
        let (subject, id) = (dice.pick(SUBJECTS), dice.below(30)); // mostly misrouted
        return json(&format!(r#"{{"kind":"view","subject":"{subject}","id":"{id}"}}"#));
    }
    match dice.below(8) {
        0 => json("{\"kind\":\"view\""),
        1 => json(r#"{"kind":"unheard","subject":"a"}"#),
        2 => json(r#"{"kind":"like","subject":"a","delta":2}"#),
        3 => json(r#"[{"kind":"view","subject":"a"},7,{"kind":"view","subject":"b","delta":-2}]"#),
        4 => (ContentType::Batch, Bytes::from_static(&[1, 255, 255, 3])),
        5 => json(""),
        _ => json(r#"{"kind":"view","subject":"video:1","delta":3}"#),
    }
}
