//! Amounts: parsing, rounding, and sums beyond int64.

use super::*;

fn check(text: &str, value: i64, milli: i64) {
    let amount = Amount::parse(text).unwrap();
    assert_eq!(amount.value(), value, "{text}");
    assert_eq!(amount.milli_value(), milli, "{text}");
}

#[test]
fn quantities_are_rounded_up() {
    check("0", 0, 0);
    check("250m", 1, 250);
    check("1.5", 2, 1_500);
    check("0.5Gi", 536_870_912, 536_870_912_000);
    check("1n", 1, 1);
    check("0.1n", 1, 1);
    check("1e3", 1_000, 1_000_000);
    check(".5", 1, 500);
    check("-1500m", -2, -1_500);
}

#[test]
fn binary_quantities_are_capped_and_decimal_ones_wrap() {
    let above = 123_456_789_012_345_678_901_i128;
    check("16Ei", i64::MAX, i64::MAX.wrapping_mul(1_000));
    check("100000Ei", i64::MAX, i64::MAX.wrapping_mul(1_000));
    check(
        "123456789012345678901",
        wrapped(above),
        wrapped(above * 1_000),
    );
    // A short amount beyond int64: 10 * 10^18.
    check("10E", 0, 0);
}

#[test]
fn malformed_quantities_are_refused() {
    for text in [
        "",
        "m",
        "1.2.3",
        "1 Gi",
        "1Zi",
        "0x10",
        "--1",
        "e3",
        "1e60",
        "-2e60",
        "1e2147483647",
        "1.5e-2147483648",
    ] {
        assert!(Amount::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_sum_is_rounded_once() {
    let half = Amount::parse("0.5").unwrap();
    assert_eq!(half.plus(half).value(), 1);
    let nano = Amount::parse("999999999n").unwrap();
    assert_eq!(nano.plus(Amount::parse("1n").unwrap()).value(), 1);
}

#[test]
fn a_sum_of_short_amounts_beyond_int64_is_exact() {
    let large = Amount::parse("999999999999999999").unwrap();
    let mut sum = large;
    for _ in 0..20 {
        sum = sum.plus(large);
    }
    assert_eq!(sum.value(), wrapped(21 * 999_999_999_999_999_999_i128));
    assert!(sum > large);
}
