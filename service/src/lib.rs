//! What every process needs and nothing about counters: clock, backoff, stopper, config,
//! telemetry, health, and the HTTP edge.

pub mod admin;
pub mod backoff;
pub mod clock;
pub mod config;
pub mod health;
pub mod http;
pub mod metrics;
pub mod mutant;
pub mod run;
pub mod stopper;
pub mod telemetry;
