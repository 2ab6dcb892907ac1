//! Tests of durations: cases of Go's, and a slow exact reference.

use proptest::prelude::*;

use super::parse;

/// Nanoseconds of the units, largest first.
const UNITS: [(&str, u128); 8] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
];

/// Slow and exact: alternating runs of number characters and of other characters, computed as fractions. The number of
/// parts is the nanoseconds by which Go's floats may differ.
fn reference(text: &str) -> Option<(i128, i128)> {
    let mut characters: Vec<char> = text.chars().collect();
    let negative = characters.first() == Some(&'-');
    if negative || characters.first() == Some(&'+') {
        characters.remove(0);
    }
    if characters == ['0'] {
        return Some((0, 0));
    }
    let numeric = |c: &char| c.is_ascii_digit() || *c == '.';
    let runs: Vec<String> = characters
        .chunk_by(|a, b| numeric(a) == numeric(b))
        .map(|run| run.iter().collect())
        .collect();
    if runs.is_empty() || runs.len() % 2 == 1 {
        return None;
    }
    let mut total = 0_u128;
    for pair in runs.chunks(2) {
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == pair[1])?;
        total += exact(&pair[0], *unit)?;
    }
    let total = i128::try_from(total).ok()?;
    let total = if negative { -total } else { total };
    i64::try_from(total).ok()?;
    Some((total, runs.len() as i128 / 2))
}

/// A decimal number of a unit, rounded down to nanoseconds.
fn exact(number: &str, unit: u128) -> Option<u128> {
    if number.matches('.').count() > 1 || number == "." {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u128 = format!("0{whole}").parse().ok()?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: u128 = format!("0{fraction}").parse().ok()?;
    Some(whole * unit + fraction * unit / scale)
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match (parse(text), reference(text)) {
        (Some(ns), Some((exact, tolerance))) => {
            let difference = (i128::from(ns) - exact).abs();
            prop_assert!(difference <= tolerance, "{text:?} is {ns}, exactly {exact}");
        }
        (got, expected) => prop_assert_eq!(got.is_some(), expected.is_some(), "{:?}", text),
    }
    Ok(())
}

proptest! {
    #[test]
    fn durations_are_those_of_a_slow_reference(
        text in "[-+]?([0-9]{0,4}(\\.[0-9]{0,9})?(h|m|s|ms|us|µs|μs|ns)){1,4}",
    ) {
        check(&text)?;
    }

    #[test]
    fn the_same_texts_are_refused_as_by_a_slow_reference(text in "[-+]{0,2}[0-9.hmsnuµ +-]{0,8}") {
        check(&text)?;
    }
}

#[test]
fn durations_are_those_of_go() {
    let cases = [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("+5s", Some(5_000_000_000)),
        ("1h15m30.918273645s", Some(4_530_918_273_645)),
        (".5s", Some(500_000_000)),
        ("5.s", Some(5_000_000_000)),
        ("-1.5h", Some(-5_400_000_000_000)),
        ("3s3s", Some(6_000_000_000)),
        ("0.33333333333333333333h", Some(1_200_000_000_000)),
        ("0.9223372036854775807h", Some(3_320_413_933_267)),
        ("9223372036854775807ns", Some(i64::MAX)),
        ("-9223372036854775808ns", Some(i64::MIN)),
        ("9223372036854775808ns", None),
        ("9223372036854775808ns9223372036854775808ns", None),
        ("9223372036854775.808us", None),
        ("-9223372036854775.809us", None),
        ("99999999999999999999h", None),
        ("", None),
        ("+", None),
        ("3", None),
        ("s", None),
        (".", None),
        (".s", None),
        ("+.s", None),
        ("1d", None),
        ("1 s", None),
        (" 1s", None),
        ("1S", None),
        ("--1s", None),
        ("1s-1s", None),
        ("1e3s", None),
        ("١s", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), expected, "{text:?}");
    }
}
