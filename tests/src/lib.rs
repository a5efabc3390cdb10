//! End to end tests: real processes, real Kafka, real Cassandra.
