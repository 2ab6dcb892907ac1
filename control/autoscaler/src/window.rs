//! A sliding window of samples in one-second buckets, as Knative's TimedFloat64Buckets. Samples are added in the same
//! order, so that averages are equal to the last bit.

use serde::Serialize;

use crate::number;

/// Aggregation of the samples of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// The mean of the seconds.
    #[default]
    Linear,
    /// The exponentially weighted mean: newer seconds have a larger weight.
    WeightedExponential,
}

/// The weight that remains for samples older than the window. It is a literal because `1.0 - 0.9999` is another float.
const WEIGHT_LEFT: f64 = 0.0001;
/// Minimum weight of the newest second.
const WEIGHT_MIN: f64 = 0.2;

/// A window of samples.
#[derive(Debug, Clone)]
pub struct Window {
    aggregation: Aggregation,
    buckets: Vec<f64>,
    total: f64,
    /// First second written since the window was last empty.
    first: Option<i64>,
    last: Option<i64>,
}

impl Window {
    /// An empty window of `window_s` seconds, at least 1.
    pub fn new(window_s: u32, aggregation: Aggregation) -> Self {
        Self {
            aggregation,
            buckets: zeroes(window_s),
            total: 0.0,
            first: None,
            last: None,
        }
    }

    /// Adds a sample; a sample older than the window is dropped.
    pub fn record(&mut self, at_ms: i64, value: f64) {
        let second = number::second(at_ms);
        if self.last != Some(second) {
            if self.last.is_some_and(|last| second + self.len() <= last) {
                return;
            }
            if self.first.is_none_or(|first| first > second) {
                self.first = Some(second);
            }
            if self.last.is_none_or(|last| second > last) {
                self.advance(second);
            }
        }
        *self.bucket_mut(second) += value;
        self.total += value;
    }

    /// Whether the window has no sample.
    pub fn is_empty(&self, now_ms: i64) -> bool {
        self.last
            .is_none_or(|last| number::second(now_ms) - last > self.len())
    }

    /// The average of the window at a time.
    pub fn average(&self, now_ms: i64) -> f64 {
        match self.aggregation {
            Aggregation::Linear => (self.mean(number::second(now_ms)) * 1e6).round() / 1e6,
            Aggregation::WeightedExponential if self.is_empty(now_ms) => 0.0,
            Aggregation::WeightedExponential => self.weighted(number::second(now_ms)),
        }
    }

    /// Changes the length; the newest samples stay.
    pub fn resize(&mut self, now_ms: i64, window_s: u32) {
        let buckets = zeroes(window_s);
        if buckets.len() == self.buckets.len() {
            return;
        }
        let has_samples = !self.is_empty(now_ms);
        let old = std::mem::replace(
            self,
            Self {
                buckets,
                total: 0.0,
                first: None,
                ..*self
            },
        );
        let Some(last) = old.last.filter(|_| has_samples) else {
            return;
        };
        for age in 0..old.len().min(self.len()) {
            let value = old.bucket(last - age);
            *self.bucket_mut(last - age) = value;
            self.total += value;
        }
        self.first = Some(last - (old.len() - 1));
    }

    fn advance(&mut self, second: i64) {
        if let Some(last) = self.last.filter(|last| second - last < self.len()) {
            for passed in last + 1..=second {
                self.total -= std::mem::take(self.bucket_mut(passed));
            }
        } else {
            self.buckets.fill(0.0);
            self.total = 0.0;
            self.first = Some(second);
        }
        self.last = Some(second);
    }

    fn mean(&self, now: i64) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        let written = self.first.map_or(i64::MAX, |first| last - first + 1);
        let behind = now - last;
        if behind <= 0 {
            return self.total / written.min(self.len()) as f64;
        }
        if behind >= self.len() {
            return 0.0;
        }
        let fresh = (last + 1..=now).fold(self.total, |total, second| total - self.bucket(second));
        fresh / written.min(self.len() - behind) as f64
    }

    fn weighted(&self, now: i64) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        let behind = (now - last).max(0);
        let newest = (1.0 - WEIGHT_LEFT.powf(1.0 / self.len() as f64)).max(WEIGHT_MIN);
        let mut weight = newest * (1.0 - newest).powf(behind as f64);
        let mut sum = 0.0;
        for age in 0..self.len() - behind {
            sum += self.bucket(last - age) * weight;
            weight *= 1.0 - newest;
        }
        sum
    }

    #[expect(
        clippy::cast_possible_wrap,
        reason = "a window has at most 3,600 buckets"
    )]
    fn len(&self) -> i64 {
        self.buckets.len() as i64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder is below the length"
    )]
    fn index(&self, second: i64) -> usize {
        second.rem_euclid(self.len()) as usize
    }

    fn bucket(&self, second: i64) -> f64 {
        self.buckets[self.index(second)]
    }

    fn bucket_mut(&mut self, second: i64) -> &mut f64 {
        let index = self.index(second);
        &mut self.buckets[index]
    }
}

fn zeroes(window_s: u32) -> Vec<f64> {
    vec![0.0; window_s.max(1) as usize]
}
