//! Numbers in the syntax of Go's `strconv.ParseFloat`: decimal (`1e3`, `1_000.5`), hexadecimal (`0x1.8p3`), `Inf`.
//!
//! Source: <https://pkg.go.dev/strconv#ParseFloat>. `NaN` is refused, which Knative accepts: no rule holds for it.

/// The nearest number; `None` if the syntax is wrong or the number is too large.
pub(super) fn parse(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let magnitude = if ["inf", "infinity"]
        .iter()
        .any(|name| unsigned.eq_ignore_ascii_case(name))
    {
        f64::INFINITY
    } else {
        finite(unsigned)?
    };
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

fn finite(unsigned: &str) -> Option<f64> {
    let value = match unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X")) {
        // An underscore may follow the prefix.
        Some(digits) => {
            let digits = digits.strip_prefix('_').unwrap_or(digits);
            hexadecimal(&without_underscores(digits, u8::is_ascii_hexdigit)?)?
        }
        // Other words and signs that the standard library accepts begin with neither.
        None if unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit()) => {
            without_underscores(unsigned, u8::is_ascii_digit)?
                .parse()
                .ok()?
        }
        None => return None,
    };
    value.is_finite().then_some(value)
}

/// The text without underscores; `None` if one is not between two digits.
fn without_underscores(text: &str, digit: impl Fn(&u8) -> bool) -> Option<String> {
    let bytes = text.as_bytes();
    let at = |index: Option<usize>| index.and_then(|index| bytes.get(index)).is_some_and(&digit);
    let between = |index: usize| at(index.checked_sub(1)) && at(index.checked_add(1));
    let valid = (0..bytes.len()).all(|index| bytes[index] != b'_' || between(index));
    valid.then(|| text.replace('_', ""))
}

/// A hexadecimal mantissa with a binary exponent, which is mandatory, after the prefix.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = Binary {
        mantissa: 0,
        exponent: binary_exponent(exponent)?,
        sticky: false,
    };
    for digit in whole.chars() {
        number.push(digit.to_digit(16)?, 0);
    }
    for digit in fraction.chars() {
        number.push(digit.to_digit(16)?, -4);
    }
    Some(number.nearest())
}

/// A decimal exponent of two. What is far beyond a double's range is cut.
fn binary_exponent(text: &str) -> Option<i64> {
    /// Beyond the range of doubles even with a mantissa of megabytes.
    const FAR: i64 = 1 << 40;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse().unwrap_or(FAR).min(FAR);
    Some(if text.starts_with('-') { -value } else { value })
}

/// A number `mantissa * 2^exponent`, and whether digits were cut off that are not zero.
struct Binary {
    mantissa: u64,
    exponent: i64,
    sticky: bool,
}

impl Binary {
    /// Appends a hexadecimal digit; `step` is 0 before the point and -4 after it.
    fn push(&mut self, digit: u32, step: i64) {
        if self.mantissa >> 60 == 0 {
            self.mantissa = (self.mantissa << 4) | u64::from(digit);
            self.exponent += step;
        } else {
            self.sticky |= digit != 0;
            self.exponent += step + 4;
        }
    }

    /// The nearest double, ties to even; infinity beyond the largest one.
    fn nearest(&self) -> f64 {
        if self.mantissa == 0 {
            return 0.0;
        }
        let shift = self.mantissa.leading_zeros();
        let mantissa = self.mantissa << shift;
        // The number is 1.xxx * 2^exponent.
        let exponent = self.exponent - i64::from(shift) + 63;
        if exponent > 1_023 {
            return f64::INFINITY;
        }
        // A double has 53 bits of mantissa, fewer below its smallest normal exponent.
        let dropped = 11 + (-1_022 - exponent).clamp(0, 54);
        let (mantissa, half) = (u128::from(mantissa), 1_u128 << (dropped - 1));
        let (kept, rest) = (mantissa >> dropped, mantissa & (2 * half - 1));
        let up = rest > half || (rest == half && (self.sticky || kept % 2 == 1));
        // The highest bit of a normal mantissa, and a carry out of it, increment the exponent field.
        let field = u64::try_from(exponent + 1_022).unwrap_or(0);
        let kept = u64::try_from(kept).unwrap_or(u64::MAX) + u64::from(up);
        f64::from_bits((field << 52) + kept)
    }
}

#[cfg(test)]
mod tests;
