//! What it costs to read a counter that was hot and has cooled down: a row for each of its 64
//! partitions, against one. With `TALLY__CQL__CONTACT_POINTS` on that store, else embedded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tally_proto::{AsOf, CounterId, Epoch, Fact, Lane, Members, Partition, SubjectId};
use tally_store::cql::{CqlSettings, CqlStore};
use tally_store::embedded::EmbeddedStore;
use tally_store::{FactRow, FactStore};

use crate::Line;

const SUBJECTS: u64 = 400;
const SHARDS: u32 = 64;

fn subject(name: &str, n: u64) -> SubjectId {
    SubjectId::new("default", &format!("{name}:{n}")).unwrap()
}

fn rows(name: &str, n: u64, shards: u32) -> Vec<FactRow> {
    let row = |partition| {
        let (epoch, as_of, generation) = (Epoch::FIRST, AsOf(7), 0);
        let fact = Fact { epoch, as_of, generation, total: 1_000, members: Members::None };
        let counter = CounterId { subject: subject(name, n), kind: "view".into() };
        FactRow { counter, lane: Lane(0), partition: Partition(partition), fact }
    };
    (0..shards).map(row).collect()
}

/// The mean time of a read, one after the other.
async fn read(store: &dyn FactStore, name: &str, shards: u32) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        for n in 0..SUBJECTS {
            let found = store.read_subject(&subject(name, n)).await.unwrap();
            assert_eq!(found.len(), shards as usize);
        }
        best = best.min(started.elapsed() / SUBJECTS as u32);
    }
    best
}

async fn measure(store: Arc<dyn FactStore>) -> [Duration; 2] {
    for n in 0..SUBJECTS {
        store.write_facts(&rows("retired", n, SHARDS)).await.unwrap();
        store.write_facts(&rows("cold", n, 1)).await.unwrap();
    }
    [read(&*store, "retired", SHARDS).await, read(&*store, "cold", 1).await]
}

pub(crate) fn read_retired() -> Line {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir_in(".").unwrap();
    let (name, [retired, cold]) = runtime.block_on(async {
        match std::env::var("TALLY__CQL__CONTACT_POINTS") {
            Ok(contact_points) => {
                let settings = CqlSettings {
                    contact_points: Some(contact_points),
                    keyspace: format!("bench_retired_{}", std::process::id()),
                    replication_factor: 1,
                    ..CqlSettings::default()
                };
                CqlStore::create(&settings, true).await.unwrap();
                let store = CqlStore::open(&settings, true).await.unwrap();
                ("read of 64 retired shards, CQL", measure(Arc::new(store)).await)
            }
            Err(_) => {
                let store = EmbeddedStore::open(folder.path()).unwrap();
                ("read of 64 retired shards, embedded", measure(Arc::new(store)).await)
            }
        }
    });
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Line {
        name,
        reached: format!("{:.0} us", micros(retired)),
        limit: format!("{:.0} us of one row", micros(cold)),
        ratio: micros(retired) / micros(cold),
        wanted: 2.0,
    }
}
