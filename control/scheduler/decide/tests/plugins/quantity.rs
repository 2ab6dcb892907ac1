//! Quantities, exactly.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The least amount that a quantity can have: 1n.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

/// Amounts in billionths of a unit.
pub(crate) type Amounts = BTreeMap<String, i128>;

pub(crate) fn amounts(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let all = quantities.into_iter().flatten();
    all.map(|(name, quantity)| (name.clone(), nanos(&quantity.0)))
        .collect()
}

/// An amount as the scheduler counts it, rounded up: CPU in millicores, all else in units.
pub(crate) fn counted(resource: &str, nanos: i128) -> i128 {
    let unit = if resource == "cpu" {
        NANOS_PER_MILLI
    } else {
        NANOS_PER_UNIT
    };
    (nanos + unit - 1).div_euclid(unit)
}

/// A quantity: digits, and a decimal suffix, a binary suffix or an exponent.
fn nanos(text: &str) -> i128 {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let (digits, suffix) = text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().unwrap();
    let scaled = mantissa * multiplier(suffix);
    let divisor = 10_i128.pow(u32::try_from(fraction.len()).unwrap());
    assert_eq!(scaled % divisor, 0, "{text} has no exact amount");
    scaled / divisor
}

fn multiplier(suffix: &str) -> i128 {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let index = |all: &[&str]| all.iter().position(|one| *one == suffix);
    if let Some(nth) = index(&DECIMAL) {
        return 1000_i128.pow(u32::try_from(nth).unwrap());
    }
    if let Some(nth) = index(&BINARY) {
        return NANOS_PER_UNIT * 1024_i128.pow(u32::try_from(nth).unwrap());
    }
    let exponent: u32 = suffix[1..].parse().unwrap();
    NANOS_PER_UNIT * 10_i128.pow(exponent)
}

#[test]
fn a_quantity_is_its_exact_amount() {
    for (text, amount) in [
        ("0", 0),
        ("100m", 100_000_000),
        ("1.5", 1_500_000_000),
        ("0.5Ki", 512_000_000_000),
        ("2e3", 2_000_000_000_000),
        ("3M", 3_000_000_000_000_000),
        ("7n", 7),
    ] {
        assert_eq!(nanos(text), amount, "{text}");
    }
    assert_eq!(counted("cpu", nanos("1500u")), 2);
    assert_eq!(counted("memory", nanos("1500m")), 2);
}
