//! The log: one port, three adapters (Kafka, embedded, memory).
