//! The result of a load: rate, latencies and the server's CPU time. Pure.

use std::time::Duration;

/// One run of a load on one server.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Answered requests.
    pub ops: u64,
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    /// CPU time of the server's process meanwhile, user and system.
    pub cpu: Duration,
    /// Latency of each request, ascending.
    latencies: Vec<Duration>,
}

impl Sample {
    /// A sample from the latencies of all requests, in any order.
    pub fn new(mut latencies: Vec<Duration>, elapsed: Duration, cpu: Duration) -> Self {
        latencies.sort_unstable();
        Self {
            ops: latencies.len() as u64,
            elapsed,
            cpu,
            latencies,
        }
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// The server's CPU time for one request, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / (self.ops.max(1) as f64)
    }

    /// The latency that a share of the requests does not exceed (nearest rank), in microseconds; 0 without requests.
    pub fn latency_us(&self, share: f64) -> f64 {
        let wanted = share * self.latencies.len() as f64;
        let mut ranked = self.latencies.iter().zip(1_u64..);
        let found = ranked.find(|(_, rank)| *rank as f64 >= wanted);
        found.map_or(0.0, |(latency, _)| latency.as_secs_f64() * 1e6)
    }
}

/// The median of a figure over all measurements, the mean of the middle two of an even number; 0 without any.
pub fn median<T>(measured: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    let mut figures: Vec<f64> = measured.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let lower = figures.get(figures.len().saturating_sub(1) / 2);
    let upper = figures.get(figures.len() / 2);
    match (lower, upper) {
        (Some(lower), Some(upper)) => lower.midpoint(*upper),
        _ => 0.0,
    }
}

/// The median over all rounds of the ratio of a figure of two servers. Noise of the machine that lasts longer than a round affects
/// both figures of a ratio.
pub fn ratio<T>([own, peer]: [&[T]; 2], figure: impl Fn(&T) -> f64) -> f64 {
    let rounds: Vec<_> = own.iter().zip(peer).collect();
    median(&rounds, |(own, peer)| figure(own) / figure(peer))
}

/// The median over all rounds of the difference of a figure of two servers.
pub fn beyond<T>([own, peer]: [&[T]; 2], figure: impl Fn(&T) -> f64) -> f64 {
    let rounds: Vec<_> = own.iter().zip(peer).collect();
    median(&rounds, |(own, peer)| figure(own) - figure(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64) -> Sample {
        let latencies = (1..=count).rev().map(Duration::from_micros).collect();
        Sample::new(
            latencies,
            Duration::from_secs(1),
            Duration::from_millis(count),
        )
    }

    #[test]
    fn percentiles_are_latencies_by_nearest_rank() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-6, "{left} {right}");
        near(sample(100).latency_us(0.5), 50.0);
        near(sample(100).latency_us(0.99), 99.0);
        near(sample(100).latency_us(1.0), 100.0);
        near(sample(1).latency_us(0.99), 1.0);
        near(sample(0).latency_us(0.5), 0.0);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-6, "{left} {right}");
        near(median(&[4.0, 1.0, 2.0, 9.0], |figure| *figure), 3.0);
        near(median(&[4.0, 1.0, 9.0], |figure| *figure), 4.0);
        near(median(&[], |figure: &f64| *figure), 0.0);
    }

    #[test]
    fn two_servers_are_compared_within_each_round() {
        // The machine is ten times slower in the second round, for both servers.
        let (own, peer) = ([3.0, 30.0, 3.3], [2.0, 20.0, 2.0]);
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-6, "{left} {right}");
        near(ratio([&own[..], &peer], |figure| *figure), 1.5);
        near(beyond([&own[..], &peer], |figure| *figure), 1.3);
        near(ratio([&own[..0], &peer], |figure| *figure), 0.0);
    }

    #[test]
    fn rate_and_cpu_are_per_request() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-6, "{left} {right}");
        near(sample(100).rate(), 100.0);
        near(sample(100).cpu_us(), 1_000.0);
        near(
            median(&[sample(1), sample(9), sample(5)], Sample::rate),
            5.0,
        );
    }
}
