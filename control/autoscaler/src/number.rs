//! The few float conversions that decisions need, each saturating at the integer's ends.

/// Cuts towards zero; values past the ends become the ends.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, which is what a count past the end means"
)]
pub(crate) fn truncated(value: f64) -> i32 {
    value as i32
}

/// The next whole number up.
pub(crate) fn ceil(value: f64) -> i32 {
    truncated(value.ceil())
}

/// The next whole number down.
pub(crate) fn floor(value: f64) -> i32 {
    truncated(value.floor())
}

/// The whole second that `ms` lies in.
pub(crate) fn second(ms: i64) -> i64 {
    ms.div_euclid(1_000)
}
