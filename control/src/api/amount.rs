//! Amounts in tables and explanations.

/// An amount of bytes in the largest binary unit of which there is one, with one decimal; other quantities stay as they are.
pub(crate) fn with_unit(quantity: &str) -> String {
    const UNITS: [&str; 4] = ["Ki", "Mi", "Gi", "Ti"];
    let Ok(bytes) = quantity.parse::<u64>() else {
        return quantity.to_owned();
    };
    let unit = UNITS.iter().enumerate().rev();
    let fitting = unit
        .map(|(index, unit)| (10 * (index + 1), unit))
        .find(|(shift, _)| bytes >> shift > 0);
    fitting.map_or_else(
        || quantity.to_owned(),
        |(shift, unit)| {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_unit() {
        for (quantity, want) in [
            ("16571600896", "15.4Gi"),
            ("1024", "1.0Ki"),
            ("1023", "1023"),
            ("16Gi", "16Gi"),
            ("", ""),
        ] {
            assert_eq!(with_unit(quantity), want);
        }
    }
}
