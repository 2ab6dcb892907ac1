//! The values that one source gives, and the order of the sources.

use super::Metric;
use crate::window::Aggregation;

macro_rules! given {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {
        /// The values that one source gives to one app: its manifest or its annotations. What it does not give is `None`.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Given {
            $($(#[$doc])* pub $field: Option<$type>,)+
        }

        impl Given {
            /// These values, and those of `other` that are not given here.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self {
                    $($field: self.$field.or(other.$field),)+
                }
            }
        }
    };
}

given! {
    /// The metric of the load.
    metric: Metric,
    /// Target of the metric per pod, before utilization.
    target: f64,
    /// Fraction of the target at which the autoscaler aims, 0 to 1.
    target_utilization: f64,
    /// Length of the stable window, seconds.
    stable_window_s: u32,
    /// Length of the panic window, in percent of the stable window.
    panic_window_percentage: f64,
    /// Scale by the panic window, in percent of the ready pods, at which panic mode begins.
    panic_threshold_percentage: f64,
    /// Maximum factor by which one decision increases the scale.
    max_scale_up_rate: f64,
    /// Maximum factor by which one decision decreases the scale.
    max_scale_down_rate: f64,
    /// Time for which a lower scale must be enough before it is applied, seconds.
    scale_down_delay_s: u32,
    /// Minimum scale of an app that is not scaled to zero.
    activation_scale: i32,
    /// Scale of a new app.
    initial_scale: i32,
    /// Minimum scale.
    min_scale: i32,
    /// Maximum scale; 0 is no limit.
    max_scale: i32,
    /// Requests of a burst that the ready pods must have capacity for; -1 is without limit.
    target_burst_capacity: f64,
    /// Aggregation of the samples of a window.
    aggregation: Aggregation,
    /// Minimum time for which the last pod is retained after the app became inactive, milliseconds.
    pod_retention_ms: i64,
    /// Time in which a pod must become ready, milliseconds.
    progress_deadline_ms: i64,
    /// The activator leaves the path only at a margin; see [`crate::path`].
    hysteresis: bool,
    /// Minimum time in proxy mode after serve mode, milliseconds.
    dwell_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_wins_value_by_value() {
        let first = Given {
            min_scale: Some(1),
            metric: Some(Metric::Rps),
            ..Given::default()
        };
        let second = Given {
            min_scale: Some(2),
            max_scale: Some(3),
            ..Given::default()
        };
        let both = first.or(second);
        assert_eq!((both.min_scale, both.max_scale), (Some(1), Some(3)));
        assert_eq!((both.metric, both.target), (Some(Metric::Rps), None));
    }
}
