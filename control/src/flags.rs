//! Parsers of flags that several roles have.

use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use dormouse_cluster::Period;

/// A duration in Kubernetes' notation, such as `30s`.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    text.parse::<Period>()
        .map(|period| period.get())
        .map_err(|error| error.to_string())
}

/// A time before now, such as `10m`.
pub(crate) fn past(text: &str) -> Result<Duration, String> {
    let given = period(text)?;
    if given.is_zero() {
        return Err("nothing is newer than that: write a time such as 30s, 10m or 2h".to_owned());
    }
    Ok(given)
}

/// A number of 0 or more.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let parsed = text.parse();
    parsed.map_err(|_malformed| "write a whole number of 0 or more".to_owned())
}

/// A /96, without its length.
pub(crate) fn acting_prefix(text: &str) -> Result<Ipv6Addr, String> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let address: Ipv6Addr = address.parse().ok()?;
        (length == "96" && address.segments()[6..] == [0, 0]).then_some(address)
    });
    parsed.ok_or_else(|| format!("`{text}` is not a /96, such as 2001:db8:a1::/96"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acting_prefix_must_be_a_96_without_host_bits() {
        assert!(acting_prefix("2001:db8:a1::/96").is_ok());
        for wrong in [
            "2001:db8:a1::",
            "2001:db8:a1::/64",
            "2001:db8:a1::1/96",
            "apps/96",
        ] {
            assert!(
                acting_prefix(wrong).expect_err(wrong).contains("/96"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_malformed_duration_is_refused() {
        assert_eq!(period("1s"), Ok(Duration::from_secs(1)));
        assert!(period("soon").is_err());
        assert_eq!(past("1s"), Ok(Duration::from_secs(1)));
        assert!(past("0s").unwrap_err().contains("10m"));
    }
}
