//! Tests of numbers: cases of Go's, and exact values of doubles.

use proptest::prelude::*;

use super::parse;

proptest! {
    #[test]
    fn a_hexadecimal_number_is_the_nearest_double(
        whole in 0_u64..1 << 32,
        fraction in 0_u64..1 << 60,
        exponent in -1_200_i32..1_100,
    ) {
        let text = format!("0x{whole:x}.{fraction:015x}p{exponent}");
        // Up to 92 bits, rounded once by the conversion; scaling is exact unless the result is subnormal.
        let exact = ((u128::from(whole) << 60) | u128::from(fraction)) as f64;
        let scaled = exact * 2_f64.powi(-60) * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2);
        prop_assume!(scaled == 0.0 || scaled.is_infinite() || scaled.is_normal());
        prop_assume!(scaled != 0.0 || exact == 0.0);
        let expected = (!scaled.is_infinite()).then_some(scaled);
        prop_assert_eq!(parse(&text), expected, "{}", text);
    }

    #[test]
    fn a_double_is_read_as_it_is_printed(value in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL) {
        prop_assert_eq!(parse(&format!("{value:e}")), Some(value));
    }

    #[test]
    fn a_hexadecimal_subnormal_is_exact(bits in 1_u64..1 << 52) {
        prop_assert_eq!(parse(&format!("0x{bits:x}p-1074")), Some(f64::from_bits(bits)));
    }
}

#[test]
fn numbers_are_those_of_go() {
    let cases = [
        ("1", Some(1.0)),
        ("+1.", Some(1.0)),
        ("-.5e1", Some(-5.0)),
        ("1E23", Some(1e23)),
        ("007", Some(7.0)),
        ("1e-400", Some(0.0)),
        ("1e400", None),
        (
            "1.797693134862315708145274237317043567981e+308",
            Some(f64::MAX),
        ),
        ("Inf", Some(f64::INFINITY)),
        ("-infinity", Some(f64::NEG_INFINITY)),
        ("infinit", None),
        ("NaN", None),
        ("1_23.50_0_0e+1_2", Some(1.235e14)),
        ("1__2", None),
        ("_1", None),
        ("1_", None),
        ("1_.5", None),
        ("1._5", None),
        ("1e_5", None),
        ("0x_1_2.3_4_5p+1_2", Some(74_565.0)),
        ("0x1p-2", Some(0.25)),
        ("0X.8P1", Some(1.0)),
        ("0x1.fffffffffffffp1023", Some(f64::MAX)),
        ("0x1.fffffffffffff8p1023", None),
        ("0x1p-1074", Some(f64::from_bits(1))),
        ("0x1p-1075", Some(0.0)),
        ("0x1.8p-1075", Some(f64::from_bits(1))),
        ("0x1.00000000000008p0", Some(1.0)),
        ("0x1.000000000000080000000001p0", Some(1.0 + f64::EPSILON)),
        ("0x1.00000000000018p0", Some(1.0 + 2.0 * f64::EPSILON)),
        ("0x0p99999999999999999999", Some(0.0)),
        ("0x1p99999999999999999999", None),
        ("0x1p-99999999999999999999", Some(0.0)),
        ("0x1", None),
        ("0x", None),
        ("0xp1", None),
        ("0x.p1", None),
        ("0x1p", None),
        ("0x1p+", None),
        ("0x1.2.3p0", None),
        ("0b1", None),
        ("", None),
        ("+", None),
        (".", None),
        (".e1", None),
        ("1e", None),
        ("1e+", None),
        ("+-1", None),
        ("--1", None),
        (" 1", None),
        ("1%", None),
        ("1,5", None),
        ("١", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), expected, "{text:?}");
    }
}
