//! Events in: check, route, batch, append.
