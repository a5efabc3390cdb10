//! What is counted: a counter, and the subject whose counters lie together.

use std::fmt;

use serde::Serialize;

use crate::name::{NameError, check_name};

/// A subject within its namespace: the unit that one store partition holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SubjectId {
    /// The namespace, `default` where none was named.
    pub namespace: Box<str>,
    /// The thing counted, such as `video:123`.
    pub subject: Box<str>,
}

impl SubjectId {
    /// A subject from two checked names.
    pub fn new(namespace: &str, subject: &str) -> Result<Self, NameError> {
        Ok(SubjectId {
            namespace: check_name(namespace)?.into(),
            subject: check_name(subject)?.into(),
        })
    }
}

impl fmt::Display for SubjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.subject)
    }
}

/// (namespace, kind, subject).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CounterId {
    /// The subject, with its namespace.
    #[serde(flatten)]
    pub subject: SubjectId,
    /// What is counted, such as `view`.
    pub kind: Box<str>,
}

impl CounterId {
    /// A counter from three checked names.
    pub fn new(namespace: &str, kind: &str, subject: &str) -> Result<Self, NameError> {
        Ok(CounterId {
            subject: SubjectId::new(namespace, subject)?,
            kind: check_name(kind)?.into(),
        })
    }
}

impl fmt::Display for CounterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.subject.namespace, self.kind, self.subject.subject)
    }
}
