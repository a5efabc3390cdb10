//! The formats of a body: one event or many, each read on its own.

use serde::Deserialize;
use serde_json::value::RawValue;
use tally_proto::limits::MAX_LINE_BYTES;
use tally_proto::{EventError, RawEvent, cloud_event_id};

/// What a body is, by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    NdJson,
    CloudEvent,
    CloudEvents,
}

/// One event of a body, or why it is none.
pub(super) type Item<'b> = Result<RawEvent<'b>, EventError>;

impl Format {
    /// The format of a media type; JSON if none is named.
    pub(super) fn of(media_type: Option<&str>) -> Option<Self> {
        match media_type {
            None | Some("application/json") => Some(Format::Json),
            Some("application/x-ndjson" | "application/ndjson") => Some(Format::NdJson),
            Some("application/cloudevents+json") => Some(Format::CloudEvent),
            Some("application/cloudevents-batch+json") => Some(Format::CloudEvents),
            Some(_) => None,
        }
    }

    /// The items of a body, in order; an error if the body as a whole cannot be parsed.
    pub(super) fn read(self, body: &str) -> Result<Vec<Item<'_>>, String> {
        match self {
            Format::Json if body.trim_ascii_start().starts_with('[') => {
                Ok(array(body)?.into_iter().map(|item| RawEvent::parse(item.get())).collect())
            }
            Format::Json => {
                let event = RawEvent::parse(body);
                if event.is_err() {
                    syntax::<&RawValue>(body)?; // not JSON at all is an error of the request
                }
                Ok(vec![event])
            }
            Format::NdJson => {
                let lines = body.lines().filter(|line| !line.trim_ascii().is_empty());
                Ok(lines.map(line).collect())
            }
            Format::CloudEvent => {
                syntax::<&RawValue>(body)?;
                Ok(vec![cloud_event(body)])
            }
            Format::CloudEvents => {
                Ok(array(body)?.into_iter().map(|item| cloud_event(item.get())).collect())
            }
        }
    }
}

fn array(body: &str) -> Result<Vec<&RawValue>, String> {
    syntax(body)
}

fn syntax<'b, T: Deserialize<'b>>(body: &'b str) -> Result<T, String> {
    serde_json::from_str(body).map_err(|error| error.to_string())
}

fn line(line: &str) -> Item<'_> {
    if line.len() > MAX_LINE_BYTES {
        let detail = format!("the line has more than {MAX_LINE_BYTES} bytes");
        return Err(EventError::Malformed(detail));
    }
    RawEvent::parse(line)
}

/// The attributes of a CloudEvent (1.0, structured mode) that we read; others are left alone. Its
/// `id` with `source` becomes the event's id, unless the event has one of its own.
#[derive(Deserialize)]
struct CloudEvent<'b> {
    specversion: String,
    id: String,
    source: String,
    #[serde(rename = "type")]
    _type: String,
    #[serde(borrow)]
    data: &'b RawValue,
}

fn cloud_event(json: &str) -> Item<'_> {
    let malformed =
        |why: &dyn std::fmt::Display| EventError::malformed(format!("CloudEvent: {why}"));
    let event: CloudEvent<'_> = serde_json::from_str(json).map_err(|error| malformed(&error))?;
    if event.specversion != "1.0" {
        return Err(malformed(&"specversion must be 1.0"));
    }
    let mut raw = RawEvent::parse(event.data.get())?;
    raw.id.get_or_insert_with(|| cloud_event_id(&event.source, &event.id).into());
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_spoils_itself_only() {
        let body = "{\"kind\":\"view\",\"subject\":\"a\"}\n\nnope\n{\"kind\":\"view\",\"subject\":\"b\"}\r\n";
        let items = Format::NdJson.read(body).unwrap();
        assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        let long = format!("{{\"kind\":\"{}\"}}", "x".repeat(MAX_LINE_BYTES));
        assert!(Format::NdJson.read(&long).unwrap()[0].is_err());
    }

    #[test]
    fn what_is_not_json_is_an_error_of_the_request() {
        assert!(Format::Json.read("{").is_err());
        assert!(Format::Json.read("[1,").is_err());
        assert!(Format::CloudEvent.read("").is_err());
        assert!(Format::Json.read("{\"kind\":1}").unwrap()[0].is_err());
        assert_eq!(Format::Json.read("[]").unwrap().len(), 0);
    }

    #[test]
    fn a_cloud_event_carries_the_event_as_its_data() {
        let event = r#"{"specversion":"1.0","id":"7","source":"/app","type":"com.example.view",
            "datacontenttype":"application/json","data":{"kind":"view","subject":"a"}}"#;
        assert!(Format::CloudEvent.read(event).unwrap()[0].is_ok());
        assert!(Format::CloudEvents.read(&format!("[{event},{{}}]")).unwrap()[1].is_err());
        let id_of = |event: &str| {
            let items = Format::CloudEvent.read(event).unwrap();
            items[0].as_ref().unwrap().id.as_ref().unwrap().0.to_string()
        };
        assert_eq!(id_of(event), id_of(&event.replace("view\",", "other\",")));
        assert_ne!(id_of(event), id_of(&event.replace("/app", "/other")));
        assert_eq!(id_of(&event.replace(r#""subject""#, r#""id":"own","subject""#)), "own");
        let old = event.replace("1.0", "0.3");
        assert!(Format::CloudEvent.read(&old).unwrap()[0].is_err());
    }
}
