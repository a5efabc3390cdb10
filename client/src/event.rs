//! The event, as the server takes it.

use serde::Serialize;

/// One action: a delta, or an actor who comes in or goes out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) kind: String,
    pub(crate) subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) op: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delta: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
    pub(crate) id: Option<String>,
}

impl Event {
    fn new(kind: &str, subject: &str) -> Self {
        Event {
            namespace: None,
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            op: None,
            delta: None,
            actor: None,
            id: None,
        }
    }

    /// Counts one up, of a kind that sums, such as `view`.
    pub fn add(kind: &str, subject: &str) -> Self {
        Event { delta: Some(1), ..Event::new(kind, subject) }
    }

    /// Puts an actor in, of a kind that counts actors, such as `like`.
    pub fn set(kind: &str, subject: &str, actor: &str) -> Self {
        let (op, actor) = (Some("set"), Some(actor.to_owned()));
        Event { op, actor, ..Event::new(kind, subject) }
    }

    /// Takes an actor out again.
    pub fn unset(kind: &str, subject: &str, actor: &str) -> Self {
        Event { op: Some("unset"), ..Event::set(kind, subject, actor) }
    }

    /// Another delta than 1: not 0, its magnitude at most 2^53 - 1.
    pub fn delta(mut self, delta: i64) -> Self {
        self.delta = Some(delta);
        self
    }

    /// Another namespace than `default`.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// An id of your own, by which the event counts once even if your process dies and sends it
    /// again later. Without one the client makes an id for its own retries.
    pub fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }
}
