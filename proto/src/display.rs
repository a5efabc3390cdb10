//! Compact numbers for people: "10.2M". Truncated, never rounded up: 999,950 is "999K".

/// A total as people like to read it: three figures at most and a letter.
pub fn compact(total: i128) -> String {
    const UNITS: [(u128, &str); 6] = [
        (1_000_000_000_000_000_000, "E"),
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "B"),
        (1_000_000, "M"),
        (1_000, "K"),
    ];
    let sign = if total < 0 { "-" } else { "" };
    let magnitude = total.unsigned_abs();
    let Some((unit, letter)) = UNITS.into_iter().find(|(unit, _)| magnitude >= *unit) else {
        return total.to_string();
    };
    // `unit` is at least 1,000, so neither division can fail.
    let whole = magnitude.checked_div(unit).unwrap_or(0);
    let rest = magnitude.checked_rem(unit).unwrap_or(0);
    let tenth = rest.checked_div(unit.checked_div(10).unwrap_or(1)).unwrap_or(0);
    if whole >= 100 || tenth == 0 {
        format!("{sign}{whole}{letter}")
    } else {
        format!("{sign}{whole}.{tenth}{letter}")
    }
}

#[cfg(test)]
mod tests {
    use super::compact;

    #[test]
    fn numbers_are_truncated_and_never_rounded_up() {
        for (total, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1K"),
            (1_099, "1K"),
            (1_100, "1.1K"),
            (12_345, "12.3K"),
            (123_456, "123K"),
            (999_950, "999K"),
            (10_241_837, "10.2M"),
            (1_999_999_999, "1.9B"),
            (-1_250, "-1.2K"),
            (i128::from(i64::MAX), "9.2E"),
        ] {
            assert_eq!(compact(total), text);
        }
    }
}
