//! Who is in: one actor's place in many counters, and all actors of one. Straight from the store,
//! never cached.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use futures::stream::{self, StreamExt, TryStreamExt};
use tally_proto::{
    CounterId, Kind, LedgerEntry, Members, Partition, SubjectId, check_name, route, slot_of,
};
use tally_store::StoreError;

use crate::reader::{ReadError, Reader};

/// Reads of the ledger in flight for one question.
const READS_IN_FLIGHT: usize = 64;

/// Most store reads for one page: it may end before it is full.
const READS_A_PAGE: usize = 80;

/// Where a page ends and the next one begins: first come actors that facts list, in the order of
/// their names, then the ledger, bucket by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// After this actor, of those that facts list.
    Inline(Box<str>),
    /// After this actor of a bucket; `None`: at its beginning.
    Ledger(u32, Option<Box<str>>),
}

/// Some of the actors that are in, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) actors: Vec<Box<str>>,
    pub(crate) next: Option<Cursor>,
}

impl Reader {
    /// Whether the actor is in, by subject, in their order.
    ///
    /// The fact is read before the entry: an entry is written after a fact that is as new, so the
    /// two never tell of a time before the fact's.
    pub(crate) async fn who_is_in(
        &self,
        kind: &Kind,
        actor: &str,
        subjects: &[SubjectId],
    ) -> Result<Vec<bool>, ReadError> {
        let mut homes: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        for (at, id) in subjects.iter().enumerate() {
            let home = self.home(kind, id, actor);
            homes.entry(home).or_default().push(at);
        }
        let mut answers = vec![false; subjects.len()];
        let mut spilled = Vec::new();
        for (partition, places) in homes {
            let counter = |at: &usize| {
                let subject = subjects.get(*at).cloned()?;
                Some(CounterId { subject, kind: kind.name.clone() })
            };
            let counters: Vec<CounterId> = places.iter().filter_map(counter).collect();
            let facts = self.store.load_facts(partition, &counters).await?;
            for ((at, counter), fact) in places.into_iter().zip(counters).zip(facts) {
                let fact = fact.map(|(_, fact)| fact).filter(|fact| fact.epoch >= self.epoch);
                match fact.map(|fact| fact.members) {
                    None | Some(Members::None) => {}
                    Some(Members::Inline(members)) => {
                        answers[at] = members.iter().any(|member| &**member == actor);
                    }
                    Some(Members::Spilled(since)) => spilled.push((at, counter, since)),
                }
            }
        }
        let reads = spilled.into_iter().map(|(at, counter, since)| async move {
            let mut entries = self.store.load_entries(&counter, &[actor.into()]).await?;
            let entry = entries.pop().flatten().filter(|entry| entry.is_since(since));
            Ok::<_, StoreError>((at, entry.is_some_and(|entry| entry.is_in)))
        });
        let found: Vec<(usize, bool)> =
            stream::iter(reads).buffer_unordered(READS_IN_FLIGHT).try_collect().await?;
        for (at, is_in) in found {
            answers[at] = is_in;
        }
        Ok(answers)
    }

    /// At most `limit` actors of a counter, after a cursor. What changes meanwhile may be on two
    /// pages or on none; what does not change is on exactly one, unless its fact spills meanwhile.
    pub(crate) async fn list_actors(
        &self,
        counter: &CounterId,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let rows = self.store.read_subject(&counter.subject).await?;
        let rows =
            || rows.iter().filter(|row| row.counter == *counter && row.fact.epoch >= self.epoch);
        let newest = rows().map(|row| row.fact.generation).max();
        let facts: BTreeMap<Partition, Members> = rows()
            .filter(|row| Some(row.fact.generation) == newest) // others are of before a reset
            .cloned()
            .map(|row| (row.partition, row.fact.members))
            .collect();
        let mut page = Page { actors: Vec::new(), next: None };
        let mut at = match after {
            Some(Cursor::Ledger(bucket, after)) => (bucket, after),
            inline => {
                let after = match inline {
                    Some(Cursor::Inline(actor)) => actor,
                    _ => Box::default(),
                };
                page.actors = listed(&facts, &after, limit);
                (0, None)
            }
        };
        if page.actors.len() == limit {
            page.next = page.actors.last().cloned().map(Cursor::Inline);
            return Ok(page);
        }
        if !facts.values().any(|members| matches!(members, Members::Spilled(_))) {
            return Ok(page);
        }
        for _ in 0..READS_A_PAGE {
            let (bucket, after) = at;
            let left = limit - page.actors.len();
            let entries = self.store.list_entries(counter, bucket, after.as_deref(), left).await?;
            at = match entries.last() {
                Some((last, _)) if entries.len() == left => (bucket, Some(last.clone())),
                _ => (bucket + 1, None),
            };
            let is_in = |(actor, entry): &(Box<str>, LedgerEntry)| {
                entry.is_in && self.is_valid(counter, &facts, actor, entry)
            };
            page.actors.extend(entries.into_iter().filter(is_in).map(|(actor, _)| actor));
            if at.0 >= LedgerEntry::BUCKETS {
                return Ok(page);
            }
            if page.actors.len() == limit {
                break;
            }
        }
        page.next = Some(Cursor::Ledger(at.0, at.1));
        Ok(page)
    }

    /// Whether the fact of an entry's partition has spilled, and not after the entry.
    fn is_valid(
        &self,
        counter: &CounterId,
        facts: &BTreeMap<Partition, Members>,
        actor: &str,
        entry: &LedgerEntry,
    ) -> bool {
        let Some(kind) = self.kinds.get(&counter.kind) else { return false };
        match facts.get(&self.home(kind, &counter.subject, actor)) {
            Some(Members::Spilled(since)) => entry.is_since(*since),
            _ => false,
        }
    }

    /// The partition where an actor's events on a subject meet.
    fn home(&self, kind: &Kind, id: &SubjectId, actor: &str) -> Partition {
        route(&id.namespace, &id.subject, slot_of(actor, kind.spread), self.partitions)
    }
}

/// Actors that facts list, in the order of their names.
fn listed(facts: &BTreeMap<Partition, Members>, after: &str, limit: usize) -> Vec<Box<str>> {
    let inline = facts.values().filter_map(|members| match members {
        Members::Inline(members) => Some(members.iter()),
        _ => None,
    });
    let mut actors: Vec<Box<str>> =
        inline.flatten().filter(|actor| ***actor > *after).cloned().collect();
    actors.sort_unstable();
    actors.truncate(limit);
    actors
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cursor::Inline(actor) => write!(f, "i.{actor}"),
            Cursor::Ledger(bucket, after) => {
                write!(f, "l{bucket}.{}", after.as_deref().unwrap_or_default())
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (place, actor) = text.split_once('.').ok_or(())?;
        let actor = match actor {
            "" => None,
            name => Some(check_name(name).map_err(|_| ())?.into()),
        };
        match (place.strip_prefix('l'), actor) {
            (Some(bucket), actor) => {
                let bucket = bucket.parse().map_err(|_| ())?;
                if bucket < LedgerEntry::BUCKETS {
                    Ok(Cursor::Ledger(bucket, actor))
                } else {
                    Err(())
                }
            }
            (None, Some(actor)) if place == "i" => Ok(Cursor::Inline(actor)),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_and_nonsense_is_refused() {
        for cursor in [
            Cursor::Inline("user:9".into()),
            Cursor::Ledger(3, None),
            Cursor::Ledger(63, Some("a.b".into())),
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "i.", "l", "l64.", "l-1.a", "x.a", "i.a b"] {
            assert_eq!(text.parse::<Cursor>(), Err(()), "{text}");
        }
    }
}
