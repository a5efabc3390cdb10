//! Who is in: one actor's place in many counters. Straight from the store, never cached.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use tally_proto::{CounterId, Kind, Members, Partition, SubjectId, route, slot_of};
use tally_store::StoreError;

use crate::reader::{ReadError, Reader};

/// Reads of the ledger in flight for one question.
const READS_IN_FLIGHT: usize = 64;

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
            let slot = slot_of(actor, kind.spread);
            let home = route(&id.namespace, &id.subject, slot, self.partitions);
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
                match fact.map(|(_, fact)| fact.members) {
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
            // What is older than the spill is void.
            let entry = entries.pop().flatten();
            let entry = entry.filter(|e| e.stamp().is_ok_and(|stamp| stamp >= since));
            Ok::<_, StoreError>((at, entry.is_some_and(|entry| entry.is_in)))
        });
        let found: Vec<(usize, bool)> =
            stream::iter(reads).buffer_unordered(READS_IN_FLIGHT).try_collect().await?;
        for (at, is_in) in found {
            answers[at] = is_in;
        }
        Ok(answers)
    }
}
