//! The events of a load: Zipf over subjects, kinds in turn, the same for the same seed.

use std::fmt::Write;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::cli::LoadArgs;

/// An endless source of events.
pub(super) struct Events {
    rng: SmallRng,
    popularity: Zipf<f64>,
    kinds: Vec<String>,
    prefix: String,
    next_kind: usize,
}

impl Events {
    pub(super) fn new(args: &LoadArgs) -> Self {
        Events {
            rng: SmallRng::seed_from_u64(args.seed),
            popularity: Zipf::new(args.subjects as f64, args.skew)
                .expect("at least one subject, and an exponent that is not negative"),
            kinds: args.kinds.clone(),
            prefix: args.prefix.clone(),
            next_kind: 0,
        }
    }

    /// `count` events as NDJSON.
    pub(super) fn batch(&mut self, count: usize) -> String {
        let mut body = String::with_capacity(count * 48);
        for _ in 0..count {
            let subject = self.popularity.sample(&mut self.rng) as u64;
            let kind = &self.kinds[self.next_kind % self.kinds.len()];
            self.next_kind += 1;
            let prefix = &self.prefix;
            writeln!(body, r#"{{"kind":"{kind}","subject":"{prefix}{subject}"}}"#)
                .expect("writing to a string does not fail");
        }
        body
    }
}
