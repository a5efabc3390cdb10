//! Every bound of the words, each with its reason.

/// Longest name (namespace, kind, subject, actor, id) in bytes: a key stays small in every store.
pub const MAX_NAME_BYTES: usize = 128;

/// Largest magnitude of one delta: what a JSON number carries exactly (2^53 - 1).
pub const MAX_DELTA: i64 = (1 << 53) - 1;

/// Most partitions of a log: a total is read from all of them, and a token may name them all.
pub const MAX_PARTITIONS: u32 = 1024;

/// Lanes of fact rows: each poisoned row costs one, so more than a few are a deeper trouble.
pub const MAX_LANES: u8 = 4;

/// Highest epoch: what the upper bits of a stamp hold beside 44 bits of offset, with room to spare.
pub const MAX_EPOCH: u8 = 64;

/// Highest offset: 44 bits, 17.6 million million records in one partition.
pub const MAX_OFFSET: u64 = (1 << 44) - 1;

/// Most events of one request: bounds the answer's list of rejected items.
pub const MAX_REQUEST_EVENTS: usize = 20_000;

/// Largest request body in bytes, before and again after decompression.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// Longest NDJSON line in bytes: the largest event is about a tenth of it.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// Largest record that ingest makes, in bytes: half of what a Kafka broker takes by default.
pub const MAX_RECORD_BYTES: usize = 512 << 10;

/// Largest record that is read from the log, in bytes; a larger one is a dead letter.
pub const MAX_READ_RECORD_BYTES: usize = 16 << 20;

/// Longest read token in bytes: 1,024 pairs of two varints, in base64.
pub const MAX_TOKEN_BYTES: usize = 24 << 10;
