//! Durations in the syntax of Go's `time.ParseDuration`: `300ms`, `-1.5h`, `2h45m`.
//!
//! Source: <https://pkg.go.dev/time#ParseDuration>. Values are nanoseconds.

/// Nanoseconds of a second.
pub(super) const SECOND: i64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub(super) const MILLISECOND: i64 = 1_000_000;
/// Limit of a duration's magnitude, which the most negative one has.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// The duration in nanoseconds; `None` if the syntax is wrong or the duration does not fit into 64 bits.
pub(super) fn parse(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let (mut total, mut rest) = part(unsigned)?;
    while !rest.is_empty() {
        let (more, after) = part(rest)?;
        total = total
            .checked_add(more)
            .filter(|&total| total <= MAGNITUDE_MAX)?;
        rest = after;
    }
    if text.starts_with('-') {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    }
}

/// Whether a duration is a whole number of seconds.
pub(super) fn whole_seconds(ns: i64) -> bool {
    ns % SECOND == 0
}

/// The first number and unit, in nanoseconds, and the text after them.
fn part(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let unit = unit(name)?;
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let ns = whole
        .checked_mul(unit)?
        .checked_add(fraction_ns(fraction, unit))?;
    (ns <= MAGNITUDE_MAX).then_some((ns, rest))
}

/// The leading digits, and the text after them.
fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Nanoseconds of a unit.
fn unit(name: &str) -> Option<u64> {
    match name {
        "ns" => Some(1),
        // The micro sign and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// The digits after the point, in nanoseconds. Computed in floats as Go does; digits that do not fit are ignored.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded towards zero; at most an hour"
)]
fn fraction_ns(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
            .filter(|&next| next <= MAGNITUDE_MAX);
        let Some(next) = next else { break };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests;
