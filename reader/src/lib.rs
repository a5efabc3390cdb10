//! Totals out: reduce, cache, HTTP.
