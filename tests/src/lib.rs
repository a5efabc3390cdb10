//! The tests are in `it/`: one binary, real processes on real servers.
