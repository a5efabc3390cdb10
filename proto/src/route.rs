//! Routing: the key of an event's slot, and the partition it picks.
//!
//! Kafka's own default partitioner (`BuiltInPartitioner.partitionForKey`, murmur2 with seed
//! 0x9747b28c, the sign bit masked, modulo the partition count), so that every client can agree.

use crate::name::DEFAULT_NAMESPACE;
use crate::position::Partition;

/// The route key: `namespace/subject` for slot 0, `namespace/subject/slot` for others; the default
/// namespace is left out.
pub fn route_key(namespace: &str, subject: &str, slot: u32) -> String {
    let mut key = String::with_capacity(
        namespace.len().saturating_add(subject.len()).saturating_add(12), // two slashes, ten digits
    );
    if namespace != DEFAULT_NAMESPACE {
        key.push_str(namespace);
        key.push('/');
    }
    key.push_str(subject);
    if slot > 0 {
        key.push('/');
        key.push_str(&slot.to_string());
    }
    key
}

/// The partition of a subject's slot among `partitions` (at least 1).
pub fn route(namespace: &str, subject: &str, slot: u32, partitions: u32) -> Partition {
    if slot == 0 && namespace == DEFAULT_NAMESPACE {
        partition_of(subject.as_bytes(), partitions) // the key is the subject: nothing to build
    } else {
        partition_of(route_key(namespace, subject, slot).as_bytes(), partitions)
    }
}

/// The slot of an actor among `spread` (at least 1).
pub fn slot_of(actor: &str, spread: u32) -> u32 {
    partition_of(actor.as_bytes(), spread).0
}

/// The partition of a route key among `partitions` (at least 1).
pub fn partition_of(route_key: &[u8], partitions: u32) -> Partition {
    Partition((murmur2(route_key) & 0x7fff_ffff).checked_rem(partitions).unwrap_or(0))
}

/// 32-bit murmur2 as Kafka's `Utils.murmur2` computes it.
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    #[allow(clippy::cast_possible_truncation)] // Java takes the length as an int as well
    let mut h = SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << at.saturating_mul(8);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `hex key, murmur2, partition of 64`, printed by the Java client's own class
    /// (`proto/golden/Murmur2Vectors.java`).
    const VECTORS: &str = include_str!("../golden/murmur2.csv");

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn partitions_equal_those_of_the_java_client() {
        let mut lines = 0;
        for line in VECTORS.lines() {
            let mut cells = line.split(',');
            let key = unhex(cells.next().unwrap());
            let hash: i32 = cells.next().unwrap().parse().unwrap();
            let partition: u32 = cells.next().unwrap().parse().unwrap();
            assert_eq!(murmur2(&key), hash.cast_unsigned(), "{line}");
            assert_eq!(partition_of(&key, 64), Partition(partition), "{line}");
            lines += 1;
        }
        assert!(lines > 100);
    }

    #[test]
    fn a_route_is_the_partition_of_its_key() {
        for (namespace, slot) in [("default", 0), ("default", 3), ("eu", 0), ("eu", 7)] {
            let key = route_key(namespace, "video:123", slot);
            assert_eq!(route(namespace, "video:123", slot, 64), partition_of(key.as_bytes(), 64));
        }
    }

    #[test]
    fn the_default_namespace_and_slot_0_are_left_out() {
        assert_eq!(route_key("default", "video:123", 0), "video:123");
        assert_eq!(route_key("default", "video:123", 3), "video:123/3");
        assert_eq!(route_key("eu", "video:123", 0), "eu/video:123");
        assert_eq!(route_key("eu", "video:123", 12), "eu/video:123/12");
    }
}
