//! Conversions of floats to integers, which saturate at the integer's limits.

/// Rounds towards zero.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, as intended for a count beyond the limits"
)]
pub(crate) fn truncated(value: f64) -> i32 {
    value as i32
}

/// Rounds up.
pub(crate) fn ceil(value: f64) -> i32 {
    truncated(value.ceil())
}

/// Rounds down.
pub(crate) fn floor(value: f64) -> i32 {
    truncated(value.floor())
}

/// The second that contains `ms`.
pub(crate) fn second(ms: i64) -> i64 {
    ms.div_euclid(1_000)
}
