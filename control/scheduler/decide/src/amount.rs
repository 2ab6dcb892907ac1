//! Kubernetes quantities with the arithmetic of its own library: exact sums, results in int64 that wrap as there.
//!
//! A short amount is an int64 with a decimal exponent, as long as digits and sums fit into it; all others are long. The
//! difference is visible only in results that exceed int64.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Malformed;

/// Digits that a short amount may have.
const SHORT_DIGITS_MAX: i64 = 18;
/// Decimal exponent of the smallest unit.
const NANO: i32 = -9;
/// Bound of a long amount, nano units: sums of them stay far from the end of the type.
const NANOS_MAX: i128 = 1 << 120;

/// Amounts by resource name.
pub(crate) type Amounts = BTreeMap<String, Amount>;

/// The amount of a resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount(Form);

#[derive(Clone, Copy, Debug)]
enum Form {
    /// `value * 10^scale`.
    Short {
        value: i64,
        scale: i32,
    },
    Long {
        nanos: i128,
    },
}

/// The parts of a quantity's text: its digits without leading zeros, the digits after the point, and the suffix.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl Amount {
    pub(crate) const ZERO: Self = Self::short(0, 0);

    /// `value` thousandths.
    pub(crate) const fn milli(value: i64) -> Self {
        Self::short(value, -3)
    }

    /// `value` whole units.
    pub(crate) const fn whole(value: i64) -> Self {
        Self::short(value, 0)
    }

    const fn short(value: i64, scale: i32) -> Self {
        Self(Form::Short { value, scale })
    }

    /// The amount of a quantity's text; an error is the reason.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = parts(text).ok_or("not a quantity")?;
        let (base, exponent) = suffix(parts.suffix).ok_or("unknown suffix of a quantity")?;
        if let Some(short) = parts.as_short(base, exponent) {
            return Ok(short);
        }
        parts.as_long(base, exponent).ok_or("too large a quantity")
    }

    /// Whole units, rounded up.
    pub(crate) fn value(self) -> i64 {
        self.in_units(0)
    }

    /// Thousandths, rounded up.
    pub(crate) fn milli_value(self) -> i64 {
        self.in_units(-3)
    }

    fn in_units(self, exponent: i32) -> i64 {
        match self.0 {
            Form::Short { value, scale } if scale < exponent => reduced(value, exponent - scale),
            Form::Short { value, scale } => enlarged(value, scale - exponent),
            Form::Long { nanos } => {
                let unit = 10_i128.pow((exponent - NANO).unsigned_abs());
                let up = i128::from(nanos.rem_euclid(unit) != 0);
                wrapped(nanos.div_euclid(unit) + up)
            }
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanos() == 0
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (Form::Short { value: a, scale: p }, Form::Short { value: b, scale: q }) =
            (self.0, other.0)
        else {
            return self.long_sum(other);
        };
        if b == 0 {
            return self;
        }
        if a == 0 {
            return other;
        }
        let scale = p.min(q);
        let sum = scaled_exactly(a, p - scale)
            .zip(scaled_exactly(b, q - scale))
            .and_then(|(a, b)| a.checked_add(b));
        sum.map_or_else(|| self.long_sum(other), |value| Self::short(value, scale))
    }

    fn long_sum(self, other: Self) -> Self {
        let nanos = self.nanos().saturating_add(other.nanos());
        Self(Form::Long { nanos })
    }

    fn nanos(self) -> i128 {
        match self.0 {
            Form::Short { value, scale } => {
                let unit = 10_i128.saturating_pow((scale - NANO).unsigned_abs());
                i128::from(value).saturating_mul(unit)
            }
            Form::Long { nanos } => nanos,
        }
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Amount {}

impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos().hash(state);
    }
}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

impl Parts<'_> {
    fn as_short(&self, base: i128, exponent: i32) -> Option<Amount> {
        let digits = i64::try_from(self.whole.len() + self.fraction.len()).ok()?;
        let is_decimal = base == 10;
        let room = if is_decimal {
            SHORT_DIGITS_MAX - digits
        } else {
            // A binary suffix counts as three digits in ten bits.
            15 - digits - i64::from(exponent) * 3 / 10 - 1
        };
        if room < 0 || !is_decimal && !self.fraction.is_empty() {
            return None;
        }
        let fraction_len = i32::try_from(self.fraction.len()).ok()?;
        let scale = if is_decimal { exponent } else { 0 } - fraction_len;
        if scale < NANO {
            return None;
        }
        let factor = if is_decimal { 1 } else { 1_i64 << exponent };
        let digits: i64 = format!("{}{}", self.whole, self.fraction).parse().ok()?;
        let value = digits.checked_mul(factor)?;
        let amount = Amount::short(if self.negative { -value } else { value }, scale);
        (amount.nanos().unsigned_abs() < NANOS_MAX.unsigned_abs()).then_some(amount)
    }

    fn as_long(&self, base: i128, exponent: i32) -> Option<Amount> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let mantissa: i128 = digits.parse().ok()?;
        let fraction_len = i32::try_from(self.fraction.len()).ok()?;
        let is_decimal = base == 10;
        let exact = if is_decimal {
            scaled_to_nanos(mantissa, exponent - fraction_len)
        } else {
            let binary = mantissa.checked_mul(1 << exponent);
            binary.and_then(|value| scaled_to_nanos(value, -fraction_len))
        };
        let cap = i128::from(i64::MAX) * 1_000_000_000;
        let nanos = match exact {
            Some(nanos) if is_decimal => (nanos < NANOS_MAX).then_some(nanos)?,
            Some(nanos) => nanos.min(cap),
            None if is_decimal => return None,
            None => cap,
        };
        let nanos = if self.negative { -nanos } else { nanos };
        Some(Amount(Form::Long { nanos }))
    }
}

/// `value * 10^exponent` in nano units, rounded up.
fn scaled_to_nanos(value: i128, exponent: i32) -> Option<i128> {
    let places = exponent.checked_sub(NANO)?;
    if places >= 0 {
        let factor = 10_i128.checked_pow(places.unsigned_abs())?;
        return value.checked_mul(factor);
    }
    let unit = 10_i128.checked_pow(places.unsigned_abs())?;
    Some(value / unit + i128::from(value % unit != 0))
}

/// `None` where the text is no quantity.
fn parts(text: &str) -> Option<Parts<'_>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let ends_at = |text: &str| {
        text.find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let (whole, rest) = digits.split_at(ends_at(digits));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(ends_at(after)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let significant = whole.trim_start_matches('0');
    Some(Parts {
        negative,
        whole: if significant.is_empty() {
            "0"
        } else {
            significant
        },
        fraction,
        suffix,
    })
}

/// The largest exponent that is computed with.
const EXPONENT_MAX: i32 = 1_000;

/// The base and the exponent of a suffix.
fn suffix(text: &str) -> Option<(i128, i32)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, i32); 6] = [
        ("Ki", 10),
        ("Mi", 20),
        ("Gi", 30),
        ("Ti", 40),
        ("Pi", 50),
        ("Ei", 60),
    ];
    let find = |list: &[(&str, i32)]| list.iter().find(|(name, _)| *name == text).map(|(_, e)| *e);
    if let Some(exponent) = find(&DECIMAL) {
        return Some((10, exponent));
    }
    if let Some(exponent) = find(&BINARY) {
        return Some((2, exponent));
    }
    let exponent = text.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    // Beyond that, an amount is refused.
    Some((10, exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)))
}

/// `value / 10^places`, rounded away from zero.
fn reduced(value: i64, places: i32) -> i64 {
    let unit = 10_i128.saturating_pow(places.unsigned_abs());
    let value = i128::from(value);
    let up = if value % unit == 0 { 0 } else { value.signum() };
    wrapped(value / unit + up)
}

/// `value * 10^places` in int64: steps of one, two, three, six and nine places wrap, all others give 0 beyond int64.
fn enlarged(value: i64, places: i32) -> i64 {
    let unit = 10_i64.checked_pow(places.unsigned_abs());
    match (places, unit) {
        (1 | 2 | 3 | 6 | 9, Some(unit)) => value.wrapping_mul(unit),
        _ => scaled_exactly(value, places).unwrap_or(0),
    }
}

fn scaled_exactly(value: i64, places: i32) -> Option<i64> {
    value.checked_mul(10_i64.checked_pow(places.unsigned_abs())?)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low 64 bits are the result, as in Go"
)]
fn wrapped(value: i128) -> i64 {
    value as i64
}

/// The amounts of a list of an object; `field` is its path.
pub(crate) fn amounts(
    field: &str,
    list: Option<&BTreeMap<String, Quantity>>,
) -> Result<Amounts, Malformed> {
    let parsed = list.into_iter().flatten().map(|(name, quantity)| {
        let amount = Amount::parse(&quantity.0)
            .map_err(|reason| Malformed::new(format_args!("{field}[{name}]"), reason))?;
        Ok((name.clone(), amount))
    });
    parsed.collect()
}

/// Adds each amount of `more`.
pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |now| now.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

/// Raises each amount to that of `other`.
pub(crate) fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|now| amount > now) {
            to.insert(name.clone(), *amount);
        }
    }
}

#[cfg(test)]
mod tests;
