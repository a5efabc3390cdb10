//! Times as they stand in JSON: RFC 3339, UTC, milliseconds.

use jiff::Timestamp;

/// Milliseconds since 1970 as `2026-11-20T12:00:01.250Z`; out of range times are clamped.
pub fn rfc3339(unix_ms: i64) -> String {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or(if unix_ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    });
    format!("{time:.3}")
}

/// An RFC 3339 time as milliseconds since 1970; `None` if it is not one.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_a_z() {
        assert_eq!(rfc3339(1_795_176_001_250), "2026-11-20T12:00:01.250Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(parse_rfc3339("2026-11-20T12:00:01.250Z"), Some(1_795_176_001_250));
        assert_eq!(parse_rfc3339("yesterday"), None);
    }
}
