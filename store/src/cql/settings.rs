//! The settings of the CQL store.

use serde::{Deserialize, Serialize};

/// `[cql]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CqlSettings {
    /// Host and port of some nodes, separated by commas. Set: CQL is the store.
    pub contact_points: Option<String>,
    /// The keyspace.
    pub keyspace: String,
    /// The local data centre; default: that of the first contact.
    pub local_dc: Option<String>,
    /// Copies of each row; what `tally setup` creates, and the least that roles accept.
    pub replication_factor: u16,
    /// User name, if the cluster asks for one.
    pub username: Option<String>,
    /// Password, if the cluster asks for one.
    pub password: Option<String>,
    /// Writes in flight at once.
    pub writes_in_flight: usize,
}

impl Default for CqlSettings {
    fn default() -> Self {
        CqlSettings {
            contact_points: None,
            keyspace: "tally".into(),
            local_dc: None,
            replication_factor: 3,
            username: None,
            password: None,
            writes_in_flight: 384,
        }
    }
}
