//! The ledger's table: an entry per counter and actor; the newest stays.

use fjall::PersistMode;
use tally_proto::{CounterId, LedgerEntry};

use super::{Tables, keys, unreadable};
use crate::port::StoreError;
use crate::rows::LedgerRow;

impl Tables {
    pub(super) fn load_entry(
        &self,
        counter: &CounterId,
        actor: &str,
    ) -> Result<Option<LedgerEntry>, StoreError> {
        let Some(blob) = self.ledger.get(keys::entry(counter, actor))? else { return Ok(None) };
        let row = || format!("{actor} of {counter}");
        LedgerEntry::decode(&blob).map(Some).map_err(|error| unreadable(row(), error))
    }

    pub(super) fn list_entries(
        &self,
        counter: &CounterId,
        bucket: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Box<str>, LedgerEntry)>, StoreError> {
        let bucket = keys::bucket(counter, bucket);
        let mut from = bucket.clone();
        if let Some(after) = after {
            from.extend(after.as_bytes());
            from.push(0); // names hold no zero byte: the next one
        }
        let mut entries = Vec::new();
        for item in self.ledger.range(from..).take(limit) {
            let (key, blob) = item.into_inner()?;
            let Some(actor) = keys::read_actor(&key, &bucket) else { break };
            let row = || format!("{actor} of {counter}");
            let entry = LedgerEntry::decode(&blob).map_err(|error| unreadable(row(), error))?;
            entries.push((actor.into(), entry));
        }
        Ok(entries)
    }

    pub(super) fn write_entries(&self, rows: &[LedgerRow]) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for LedgerRow { counter, actor, entry } in rows {
            let kept = self.load_entry(counter, actor)?;
            if kept.is_none_or(|kept| (entry.epoch, entry.as_of) > (kept.epoch, kept.as_of)) {
                batch.insert(&self.ledger, keys::entry(counter, actor), entry.encode().as_ref());
            }
        }
        Ok(batch.commit()?)
    }
}
