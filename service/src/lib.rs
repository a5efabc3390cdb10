//! What every process needs and nothing about counters: clock, stopper, config, telemetry, HTTP edge.
