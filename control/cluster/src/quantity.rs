//! Kubernetes quantities (`250m`, `1.5Gi`) as integers, rounded up as in kube-scheduler.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Digits of a fraction: Kubernetes' smallest unit is nano.
const DIGITS: u32 = 9;
const NANO: i128 = 10_i128.pow(DIGITS);

/// The quantity in whole units, as Go's `Quantity.Value`; `None` if it is malformed.
pub fn value(quantity: &Quantity) -> Option<i64> {
    rounded_up(nanos(&quantity.0)?, NANO)
}

/// The quantity in thousandths, as Go's `Quantity.MilliValue`; `None` if it is malformed.
pub fn milli_value(quantity: &Quantity) -> Option<i64> {
    rounded_up(nanos(&quantity.0)?, NANO / 1_000)
}

fn rounded_up(nanos: i128, unit: i128) -> Option<i64> {
    let down = nanos.div_euclid(unit);
    i64::try_from(if nanos.rem_euclid(unit) == 0 {
        down
    } else {
        down + 1
    })
    .ok()
}

/// Whether the quantity is well-formed, and above what [`milli_value`] can return.
pub fn is_too_large(quantity: &Quantity) -> bool {
    let Some((false, _, suffix)) = parts(&quantity.0) else {
        return false;
    };
    let exponent = suffix.strip_prefix(['e', 'E']).map(str::parse::<i32>);
    let is_known = scale(suffix).is_some() || matches!(exponent, Some(Ok(18..)));
    is_known && milli_value(quantity).is_none()
}

/// Whether a quantity is negative, its digits before and after the point, and its suffix.
fn parts(text: &str) -> Option<(bool, (&str, &str), &str)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    Some((negative, (whole, fraction), suffix))
}

fn nanos(text: &str) -> Option<i128> {
    let (negative, (whole, fraction), suffix) = parts(text)?;
    let (numerator, denominator) = scale(suffix)?;
    let digits: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let scaled = digits
        .checked_mul(numerator)?
        .checked_mul(NANO)?
        .div_euclid(denominator);
    let total = scaled.checked_add(fraction_nanos(fraction, numerator)?.div_euclid(denominator))?;
    Some(if negative { -total } else { total })
}

/// `0.fraction` times `numerator`, in nanos.
fn fraction_nanos(fraction: &str, numerator: i128) -> Option<i128> {
    let digits: String = fraction.chars().take(DIGITS as usize).collect();
    if digits.is_empty() {
        return Some(0);
    }
    let missing = DIGITS - u32::try_from(digits.len()).ok()?;
    digits
        .parse::<i128>()
        .ok()?
        .checked_mul(10_i128.pow(missing))?
        .checked_mul(numerator)
}

/// The numerator and the denominator of a suffix.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let power = |base: i128, exponent: u32| Some((base.checked_pow(exponent)?, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1_000)),
        "k" => power(1_000, 1),
        "M" => power(1_000, 2),
        "G" => power(1_000, 3),
        "T" => power(1_000, 4),
        "P" => power(1_000, 5),
        "E" => power(1_000, 6),
        "Ki" => power(1_024, 1),
        "Mi" => power(1_024, 2),
        "Gi" => power(1_024, 3),
        "Ti" => power(1_024, 4),
        "Pi" => power(1_024, 5),
        "Ei" => power(1_024, 6),
        _ => match suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
            exponent @ 0..=18 => power(10, exponent.unsigned_abs()),
            exponent @ -9..=-1 => Some((1, 10_i128.pow(exponent.unsigned_abs()))),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected_units: Option<i64>, expected_thousandths: Option<i64>) {
        let quantity = Quantity(text.to_owned());
        assert_eq!(value(&quantity), expected_units, "{text}");
        assert_eq!(milli_value(&quantity), expected_thousandths, "{text}");
    }

    #[test]
    fn a_quantity_that_cannot_be_counted_is_too_large_and_not_malformed() {
        for text in ["100000000000000000000", "1e30", "9.5Ei", "1e2147483647"] {
            assert!(is_too_large(&Quantity(text.to_owned())), "{text}");
        }
        for text in ["8Pi", "1e15", "", "1x", "e30", "-1e30", "1e99999999999"] {
            assert!(!is_too_large(&Quantity(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        check("0", Some(0), Some(0));
        check("250m", Some(1), Some(250));
        check("1.5", Some(2), Some(1_500));
        check("1.5Gi", Some(1_610_612_736), Some(1_610_612_736_000));
        check("2k", Some(2_000), Some(2_000_000));
        check("1e3", Some(1_000), Some(1_000_000));
        check("100n", Some(1), Some(1));
        check("-1", Some(-1), Some(-1_000));
    }

    #[test]
    fn a_malformed_quantity_is_refused() {
        for text in ["", "m", "1.2.3", "1 Gi", "1Zi", "0x10", "1e40", "--1"] {
            check(text, None, None);
        }
    }
}
