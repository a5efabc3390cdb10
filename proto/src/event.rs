//! The event: one action, as JSON gives it and as it is after the check.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kind::{Kind, Kinds, Mode};
use crate::limits::MAX_DELTA;
use crate::name::{DEFAULT_NAMESPACE, NameError, check_name};
use crate::route::slot_of;
use crate::time::parse_rfc3339;

/// Text that borrows from the input where it has no escapes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Text(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text(Cow::Owned(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// What an event does, as JSON names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Adds a delta (tally).
    Add,
    /// Puts an actor in (set).
    Set,
    /// Takes an actor out (set).
    Unset,
}

/// An event as it stands in JSON; nothing of it is checked but its shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEvent<'a> {
    /// Default `default`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<'a>>,
    /// A declared kind.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// The thing counted.
    #[serde(borrow)]
    pub subject: Text<'a>,
    /// Default: what counts one up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
    /// Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<i64>,
    /// Who acts.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Text<'a>>,
    /// The idempotency id.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Text<'a>>,
    /// When it happened, by the producer; does not move the event.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Text<'a>>,
    /// Where it happened.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Text<'a>>,
}

/// What a checked event does to its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Adds a delta: not 0, magnitude at most 2^53 - 1.
    Add(i64),
    /// Puts an actor in.
    Set(&'a str),
    /// Takes an actor out.
    Unset(&'a str),
}

/// An event that passed the check.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its namespace, `default` where none was named.
    pub namespace: &'a str,
    /// Its kind.
    pub kind: &'a Kind,
    /// The thing counted.
    pub subject: &'a str,
    /// What it does.
    pub action: Action<'a>,
    /// Who acts, where one is named.
    pub actor: Option<&'a str>,
    /// What tells its repeats from new events, where it was given.
    pub id: Option<&'a str>,
}

impl Event<'_> {
    /// Whether something is remembered of the event: then it must come to the slot of its actor, or
    /// else of its id.
    pub fn is_stateful(&self) -> bool {
        self.id.is_some() || !matches!(self.action, Action::Add(_))
    }

    /// The slot that the event must take, if it is stateful. Other deltas may take any, and take
    /// the first.
    pub fn slot(&self) -> u32 {
        match self.actor.or(self.id) {
            Some(name) if self.is_stateful() => slot_of(name, self.kind.spread),
            _ => 0,
        }
    }
}

/// Why an event is refused. Sending it again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EventError {
    /// Not the JSON of an event.
    #[error("not an event: {0}")]
    Malformed(String),
    /// A field that holds no name.
    #[error("'{0}' {1}")]
    BadName(&'static str, NameError),
    /// A kind that nobody declared.
    #[error("kind '{0}' is not declared")]
    UnknownKind(String),
    /// An op that the kind's mode does not have.
    #[error("kind '{kind}' takes op {takes}")]
    WrongOp {
        /// The kind.
        kind: Box<str>,
        /// What it takes.
        takes: &'static str,
    },
    /// A delta of 0 counts nothing.
    #[error("'delta' must not be 0")]
    ZeroDelta,
    /// A delta past what JSON carries exactly.
    #[error("'delta' must be between -{MAX_DELTA} and {MAX_DELTA}")]
    DeltaTooLarge,
    /// A set kind counts actors, and none was named.
    #[error("kind '{0}' counts actors: name one in 'actor'")]
    ActorMissing(Box<str>),
    /// A set kind counts each actor once, so a delta says nothing.
    #[error("kind '{0}' counts each actor once: it takes no 'delta'")]
    DeltaOnSet(Box<str>),
    /// A time that is not RFC 3339.
    #[error("'time' must be an RFC 3339 time such as 2026-11-20T12:00:00Z")]
    BadTime,
}

impl EventError {
    /// Malformed, as `error` says; what quotes input is cut, so that an error is never larger than
    /// what caused it.
    pub fn malformed(error: impl fmt::Display) -> Self {
        EventError::Malformed(error.to_string().chars().take(200).collect())
    }

    /// The stable code, as it stands in answers and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            EventError::Malformed(_) => "malformed",
            EventError::BadName(..) => "bad_name",
            EventError::UnknownKind(_) => "unknown_kind",
            EventError::WrongOp { .. } => "wrong_op",
            EventError::ZeroDelta => "zero_delta",
            EventError::DeltaTooLarge => "delta_too_large",
            EventError::ActorMissing(_) => "actor_missing",
            EventError::DeltaOnSet(_) => "delta_on_set",
            EventError::BadTime => "bad_time",
        }
    }
}

impl<'a> RawEvent<'a> {
    /// One event from its JSON text, which it borrows from.
    pub fn parse(json: &'a str) -> Result<Self, EventError> {
        serde_json::from_str(json).map_err(EventError::malformed)
    }

    /// The event, if all of it is right.
    pub fn check<'b>(&'b self, kinds: &'b Kinds) -> Result<Event<'b>, EventError> {
        let namespace = match &self.namespace {
            None => DEFAULT_NAMESPACE,
            Some(namespace) => name("namespace", namespace)?,
        };
        // A declared kind has a name that is right; only another one need be looked at.
        let kind = match kinds.get(&self.kind.0) {
            Some(kind) => kind,
            None => {
                let kind = name("kind", &self.kind)?;
                return Err(EventError::UnknownKind(kind.to_owned()));
            }
        };
        let subject = name("subject", &self.subject)?;
        self.check_optional()?;
        let action = self.action(kind)?;
        let (actor, id) = (self.actor.as_ref().map(|a| &*a.0), self.id.as_ref().map(|id| &*id.0));
        Ok(Event { namespace, kind, subject, action, actor, id })
    }

    fn check_optional(&self) -> Result<(), EventError> {
        if let Some(actor) = &self.actor {
            name("actor", actor)?;
        }
        if let Some(id) = &self.id {
            name("id", id)?;
        }
        if let Some(region) = &self.region {
            name("region", region)?;
        }
        match &self.time {
            Some(time) if parse_rfc3339(&time.0).is_none() => Err(EventError::BadTime),
            _ => Ok(()),
        }
    }

    fn action(&self, kind: &Kind) -> Result<Action<'_>, EventError> {
        match (kind.mode, self.op) {
            (Mode::Tally, None | Some(Op::Add)) => match self.delta.unwrap_or(1) {
                0 => Err(EventError::ZeroDelta),
                delta if delta.unsigned_abs() > MAX_DELTA.unsigned_abs() => {
                    Err(EventError::DeltaTooLarge)
                }
                delta => Ok(Action::Add(delta)),
            },
            (Mode::Tally, Some(_)) => {
                Err(EventError::WrongOp { kind: kind.name.clone(), takes: "add" })
            }
            (Mode::Set, Some(Op::Add)) => {
                Err(EventError::WrongOp { kind: kind.name.clone(), takes: "set or unset" })
            }
            (Mode::Set, _) if self.delta.is_some() => {
                Err(EventError::DeltaOnSet(kind.name.clone()))
            }
            (Mode::Set, op) => match &self.actor {
                None => Err(EventError::ActorMissing(kind.name.clone())),
                Some(actor) if op == Some(Op::Unset) => Ok(Action::Unset(&actor.0)),
                Some(actor) => Ok(Action::Set(&actor.0)),
            },
        }
    }
}

fn name<'t>(field: &'static str, text: &'t Text<'_>) -> Result<&'t str, EventError> {
    check_name(&text.0).map_err(|error| EventError::BadName(field, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<(String, String, String), EventError> {
        let kinds = Kinds::built_in();
        let raw = RawEvent::parse(json)?;
        let event = raw.check(&kinds)?;
        Ok((event.namespace.into(), event.subject.into(), format!("{:?}", event.action)))
    }

    fn code(json: &str) -> &'static str {
        check(json).unwrap_err().code()
    }

    #[test]
    fn an_event_counts_one_up_by_default() {
        let expected = Ok(("default".into(), "video:123".into(), "Add(1)".into()));
        assert_eq!(check(r#"{"kind":"view","subject":"video:123"}"#), expected);
        assert_eq!(check(r#"{"kind":"view","subject":"vid\u0065o:123"}"#), expected);
    }

    #[test]
    fn an_event_of_a_set_kind_puts_its_actor_in_or_out() {
        for (op, action) in [("", "Set"), (r#","op":"set""#, "Set"), (r#","op":"unset""#, "Unset")]
        {
            let json = format!(r#"{{"kind":"like","subject":"a","actor":"user:9"{op}}}"#);
            let expected = format!(r#"{action}("user:9")"#);
            assert_eq!(check(&json), Ok(("default".into(), "a".into(), expected)));
        }
    }

    #[test]
    fn every_refusal_has_its_code() {
        for (json, expected) in [
            (r#"{"kind":"view"}"#, "malformed"),
            (r#"{"kind":"view","subject":"a","colour":1}"#, "malformed"),
            (r#"{"kind":"view","subject":"a","delta":1.5}"#, "malformed"),
            (r#"{"kind":"view","subject":"a b"}"#, "bad_name"),
            (r#"{"kind":"view","subject":"a","region":""}"#, "bad_name"),
            (r#"{"kind":"vieww","subject":"a"}"#, "unknown_kind"),
            (r#"{"kind":"view","subject":"a","op":"set"}"#, "wrong_op"),
            (r#"{"kind":"like","subject":"a","op":"add"}"#, "wrong_op"),
            (r#"{"kind":"view","subject":"a","delta":0}"#, "zero_delta"),
            (r#"{"kind":"view","subject":"a","delta":9007199254740992}"#, "delta_too_large"),
            (r#"{"kind":"view","subject":"a","delta":-9223372036854775808}"#, "delta_too_large"),
            (r#"{"kind":"view","subject":"a","time":"now"}"#, "bad_time"),
            (r#"{"kind":"view","subject":"a","id":""}"#, "bad_name"),
            (r#"{"kind":"like","subject":"a"}"#, "actor_missing"),
            (r#"{"kind":"like","subject":"a","op":"unset"}"#, "actor_missing"),
            (r#"{"kind":"like","subject":"a","actor":".."}"#, "bad_name"),
            (r#"{"kind":"like","subject":"a","actor":"user:9","delta":1}"#, "delta_on_set"),
        ] {
            assert_eq!(code(json), expected, "{json}");
        }
    }

    #[test]
    fn a_stateful_event_takes_the_slot_of_its_actor_or_else_of_its_id() {
        let kinds = Kinds::built_in();
        for (fields, name) in [
            (r#""kind":"view""#, None),
            (r#""kind":"view","actor":"user:9""#, None),
            (r#""kind":"view","id":"7""#, Some("7")),
            (r#""kind":"view","id":"7","actor":"user:9""#, Some("user:9")),
            (r#""kind":"like","id":"7","actor":"user:9""#, Some("user:9")),
        ] {
            let json = format!(r#"{{"subject":"a",{fields}}}"#);
            let raw = RawEvent::parse(&json).unwrap();
            let event = raw.check(&kinds).unwrap();
            assert_eq!(event.is_stateful(), name.is_some(), "{json}");
            assert_eq!(event.slot(), name.map_or(0, |name| slot_of(name, 8)), "{json}");
        }
    }

    #[test]
    fn an_error_never_quotes_more_than_a_little_of_its_input() {
        let json = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
        assert!(check(&json).unwrap_err().to_string().len() < 300);
    }
}
