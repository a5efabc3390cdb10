//! End to end: the real binaries as processes, on the embedded default and on real Kafka and
//! Cassandra. Servers are found in this order: addresses in the environment (`TALLY_TEST_KAFKA`,
//! `TALLY_TEST_CQL`), containers where a Docker daemon answers, `deploy/local`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::too_many_lines)]

mod burst;
mod clients;
mod contracts;
mod documents;
mod drills;
mod embedded;
mod faults;
mod foreign;
mod http_edge;
mod likes;
mod replaced;
mod resets;
mod retries;
mod support;
mod tidy;
