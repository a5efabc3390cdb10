//! From records to facts: a pure engine per partition, and the runner around it.
