//! The store: one port, three adapters (CQL, embedded, memory).
