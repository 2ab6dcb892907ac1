//! The usual normalization of scores, and Go's conversion of floating-point numbers.

/// The largest score of a plugin, before its weight.
pub(crate) const SCORE_MAX: i64 = 100;

/// Scales a score so that the largest is 100; with `reverse`, so that it is 0.
pub(crate) fn to_largest(score: i64, (_, largest): (i64, i64), reverse: bool) -> i64 {
    let largest = largest.max(0);
    let scaled = if largest == 0 {
        if reverse { 0 } else { score }
    } else {
        SCORE_MAX.wrapping_mul(score) / largest
    };
    if reverse { SCORE_MAX - scaled } else { scaled }
}

/// A float as int64, truncated; as on amd64, what does not fit is the smallest int64.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is checked before"
)]
pub(crate) fn truncated(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_score_becomes_100_or_0() {
        let check = |scores: &[i64], reverse, expected: &[i64]| {
            let range = (scores[0], *scores.iter().max().unwrap());
            let all: Vec<_> = scores
                .iter()
                .map(|score| to_largest(*score, range, reverse))
                .collect();
            assert_eq!(all, expected);
        };
        check(&[1, 2, 3], false, &[33, 66, 100]);
        check(&[1, 2, 3], true, &[67, 34, 0]);
        check(&[0, 0], false, &[0, 0]);
        check(&[0, 0], true, &[100, 100]);
        check(&[-4, -2], false, &[-4, -2]);
    }

    #[test]
    fn floats_beyond_int64_are_its_smallest_value() {
        assert_eq!(truncated(-1.9), -1);
        for value in [1e19, -1e19, f64::NAN, f64::INFINITY] {
            assert_eq!(truncated(value), i64::MIN);
        }
    }
}
