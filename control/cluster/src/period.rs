//! Durations in manifests, in Go's notation (`6s`, `1m30s`), as Kubernetes' `metav1.Duration`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest duration in a manifest: a week. A longer one is a typing error.
pub const PERIOD_MAX: Duration = Duration::from_hours(7 * 24);

/// A duration in Go's notation, with its original text, so that an object is encoded as it was written.
#[derive(Debug, Clone)]
pub struct Period {
    text: String,
    value: Duration,
}

/// An error of parsing a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PeriodError {
    /// The text is not a sequence of numbers with units.
    #[error(
        "`{0}` is not a duration: write a number and a unit (ms, s, m, h), such as 6s or 1m30s"
    )]
    Malformed(String),
    /// The duration is longer than [`PERIOD_MAX`].
    #[error("`{0}` is longer than the longest duration allowed, 168h")]
    TooLong(String),
}

impl Period {
    /// The parsed duration.
    pub fn get(&self) -> Duration {
        self.value
    }

    /// A duration of whole seconds.
    pub fn seconds(seconds: u32) -> Self {
        Self {
            text: format!("{seconds}s"),
            value: Duration::from_secs(seconds.into()),
        }
    }
}

impl PartialEq for Period {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || PeriodError::Malformed(text.to_owned());
        let mut rest = text;
        let mut seconds = 0.0;
        while !rest.is_empty() && text != "0" {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(malformed)?;
            let (number, tail) = rest.split_at(digits);
            let unit_len = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let number: f64 = number.parse().map_err(|_not_a_number| malformed())?;
            seconds += number * seconds_in(unit).ok_or_else(malformed)?;
            rest = tail;
        }
        if text.is_empty() {
            return Err(malformed());
        }
        if seconds > PERIOD_MAX.as_secs_f64() {
            return Err(PeriodError::TooLong(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            value: Duration::from_secs_f64(seconds),
        })
    }
}

/// Seconds in one `unit`; `None` if it is unknown.
fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^0$|^([0-9.]+(ns|us|\u{b5}s|ms|s|m|h))+$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, millis: u64) {
        assert_eq!(
            text.parse::<Period>().map(|p| p.get()),
            Ok(Duration::from_millis(millis)),
            "{text}"
        );
    }

    #[test]
    fn numbers_with_units_are_added() {
        check("6s", 6_000);
        check("1m30s", 90_000);
        check("1.5h", 5_400_000);
        check("250ms", 250);
        check("0", 0);
        check("0s", 0);
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for text in [
            "", "6", "s", "six", "-6s", "6 s", "1.2.3s", "6d", "6s7", "NaNs", "1e9h",
        ] {
            assert!(
                matches!(text.parse::<Period>(), Err(PeriodError::Malformed(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_duration_above_the_maximum_is_refused_and_does_not_overflow() {
        let text = format!("{}h", "9".repeat(400));
        assert!(matches!(
            text.parse::<Period>(),
            Err(PeriodError::TooLong(_))
        ));
        assert!(matches!(
            "169h".parse::<Period>(),
            Err(PeriodError::TooLong(_))
        ));
    }

    #[test]
    fn a_duration_is_encoded_as_it_was_written() {
        let period: Period = serde_json::from_str("\"90s\"").unwrap();
        assert_eq!(serde_json::to_string(&period).unwrap(), "\"90s\"");
        assert_eq!(period, "1m30s".parse().unwrap());
    }
}
