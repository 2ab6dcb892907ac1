//! Durations in the form of etcd's flags, which is Go's: `10m0s`, `1.5h`, `300ms`.

use std::time::Duration;

/// Units, longer names first where one starts with another.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// A duration above 0.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid =
        || format!("`{text}` is no duration above 0: write a number and a unit, such as 10m");
    duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(invalid)
}

/// A duration, which may be 0.
pub(crate) fn parse_or_zero(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is no duration: write a number and a unit, such as 10m");
    match text {
        "0" => Ok(Duration::ZERO),
        _ => duration(text).ok_or_else(invalid),
    }
}

/// `None` for texts of another form, and for the empty one.
fn duration(text: &str) -> Option<Duration> {
    let seconds = seconds(text).filter(|_| !text.is_empty())?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(unit, _)| after.starts_with(unit))?;
        total += number * factor;
        rest = &after[unit.len()..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_go_are_read() {
        for (text, expected) in [
            ("1s", Duration::from_secs(1)),
            ("10m0s", Duration::from_mins(10)),
            ("1.5h", Duration::from_mins(90)),
            ("300ms", Duration::from_millis(300)),
            ("1h2m3s", Duration::from_secs(3723)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_duration_of_0_is_read_where_it_means_none() {
        for text in ["0", "0s"] {
            assert_eq!(parse_or_zero(text), Ok(Duration::ZERO));
        }
        for text in ["", "5", "-1s"] {
            let refused = parse_or_zero(text).unwrap_err();
            assert!(refused.contains("such as 10m"), "{refused}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "0s", "-1s", "1x", "s", "1..2s", "1s5"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("such as 10m"), "{refused}");
        }
    }
}
