//! Percentiles of measured samples.

/// The smallest sample that at least `share` of all samples do not exceed (nearest rank); 0 without samples.
pub(super) fn percentile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let below = sorted
        .iter()
        .enumerate()
        .find(|(index, _)| (index + 1) as f64 >= share * sorted.len() as f64);
    below.map_or(0.0, |(_, sample)| *sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!((percentile(&samples, 0.5) - 50.0).abs() < 1e-9);
        assert!((percentile(&samples, 0.99) - 99.0).abs() < 1e-9);
        assert!((percentile(&[7.0], 0.99) - 7.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).abs() < 1e-9);
    }
}
