//! The events of a load: Zipf over subjects, kinds in turn, the same for the same seed.

use std::fmt::Write;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use tally_proto::{Kinds, Mode};

use crate::cli::LoadArgs;

const WRITES: &str = "writing to a string does not fail";

/// An endless source of events.
pub(super) struct Events {
    rng: SmallRng,
    popularity: Zipf<f64>,
    kinds: Vec<String>,
    prefix: String,
    actors: u64,
    ids: bool,
    /// Begins the ids of this run, which no other run has.
    run: u64,
    declared: Kinds,
    next: usize,
}

impl Events {
    pub(super) fn new(args: &LoadArgs) -> Self {
        Events {
            rng: SmallRng::seed_from_u64(args.seed),
            popularity: Zipf::new(args.subjects as f64, args.skew)
                .expect("at least one subject, and an exponent that is not negative"),
            kinds: args.kinds.clone(),
            prefix: args.prefix.clone(),
            actors: args.actors.max(1),
            ids: args.ids,
            run: rand::random(),
            declared: Kinds::built_in(),
            next: 0,
        }
    }

    /// `count` events as NDJSON.
    pub(super) fn batch(&mut self, count: usize) -> String {
        let mut body = String::with_capacity(count * 48);
        for _ in 0..count {
            let subject = self.popularity.sample(&mut self.rng) as u64;
            let kind = self.kinds[self.next % self.kinds.len()].clone();
            self.next += 1;
            let prefix = &self.prefix;
            write!(body, r#"{{"kind":"{kind}","subject":"{prefix}{subject}""#).expect(WRITES);
            if self.declared.get(&kind).is_some_and(|kind| kind.mode == Mode::Set) {
                let actor = self.rng.random_range(0..self.actors);
                write!(body, r#","actor":"user:{actor}""#).expect(WRITES);
            }
            if self.ids {
                write!(body, r#","id":"{:016x}{:08x}""#, self.run, self.next).expect(WRITES);
            }
            body.push_str("}\n");
        }
        body
    }
}
