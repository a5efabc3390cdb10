//! The one binary: every role, and the operator's commands.
