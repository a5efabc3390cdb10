//! What createCounter said: a counter's key, and its row as JSON.

use fjall::PersistMode;
use tally_proto::CounterId;

use super::{Tables, damaged, keys};
use crate::port::StoreError;
use crate::rows::Created;

impl Tables {
    pub(super) fn load_created(&self, counter: &CounterId) -> Result<Option<Created>, StoreError> {
        let Some(json) = self.created.get(keys::created(counter))? else { return Ok(None) };
        serde_json::from_slice(&json).map(Some).map_err(|error| damaged(counter, error))
    }

    pub(super) fn write_created(
        &self,
        counter: &CounterId,
        created: Option<Created>,
    ) -> Result<(), StoreError> {
        let key = keys::created(counter);
        match created {
            Some(created) => {
                let json = serde_json::to_vec(&created).map_err(|error| damaged(counter, error))?;
                self.created.insert(key, json)?;
            }
            None => self.created.remove(key)?,
        }
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}
