//! Properties of windows and decisions for all loads.

use dormouse_autoscaler::path::{Damping, Path, TICKS, margin};
use dormouse_autoscaler::window::{Aggregation, Window};
use dormouse_autoscaler::{Decider, Settings, Stat};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_linear_average_is_the_mean_of_the_seconds_in_the_window(
        values in prop::collection::vec(0.0..1e3f64, 1..50),
        window_s in 1u32..20,
    ) {
        let mut window = Window::new(window_s, Aggregation::Linear);
        let mut now_ms = 0;
        for value in &values {
            window.record(now_ms, *value);
            now_ms += 1_000;
        }
        let newest = &values[values.len().saturating_sub(window_s as usize)..];
        let mean = newest.iter().sum::<f64>() / newest.len() as f64;
        prop_assert!((window.average(now_ms - 1_000) - mean).abs() < 1e-5);
    }

    #[test]
    fn a_decision_stays_within_its_rates_unless_panic_mode_prevents_a_scale_down(
        loads in prop::collection::vec((0.0..5e3f64, 0i32..50), 1..60),
    ) {
        let settings = Settings { max_scale_up_rate: 3.0, ..Settings::default() };
        let mut decider = Decider::new(0, settings, Some(0));
        let mut now_ms = 0;
        for (concurrency, ready) in loads {
            now_ms += 2_000;
            decider.record(now_ms, &Stat { concurrency, ..Stat::default() });
            let decision = decider.decide(now_ms, Some(ready)).unwrap();
            prop_assert!(decision.desired >= decision.down_limit);
            prop_assert!(decision.desired <= decision.up_limit.max(decision.max_panic_pods));
            prop_assert!(decision.panic_since_ms.is_some() || decision.max_panic_pods == 0 || ready == 0);
            let served = decision.pods_to_serve().unwrap();
            let excess = f64::from(served) * decision.total_value - 211.0 - decision.panic;
            prop_assert!(excess >= 0.0);
        }
    }
}

proptest! {
    #[test]
    fn the_activator_enters_the_path_at_once_and_leaves_it_as_the_damping_allows(
        steps in prop::collection::vec((0i64..5_000, -50i32..100, any::<bool>(), any::<bool>()), 1..80),
        hysteresis: bool,
        dwell_ms in prop_oneof![Just(0i64), 0i64..20_000],
        capacity in prop::sample::select(vec![-1.0, 0.0, 3.0, 211.0]),
    ) {
        let damping = Damping { hysteresis, dwell_ms };
        let mut path = Path::default();
        let (mut now_ms, mut left_ms, mut reached) = (0, None, 0);
        for (pause_ms, excess, is_tick, is_inactive) in steps {
            now_ms += pause_ms;
            if is_tick {
                path.decided(excess, capacity);
                reached = if f64::from(excess) >= margin(capacity) { reached + 1 } else { 0 };
            }
            let (before, wanted) = (path.serves(), excess >= 0 && !is_inactive);
            path.change(wanted, damping, now_ms);
            prop_assert!(wanted || !path.serves(), "entering is never delayed");
            if before && !path.serves() {
                (left_ms, reached) = (Some(now_ms), 0);
            }
            if !before && path.serves() {
                prop_assert!(left_ms.is_none_or(|left| now_ms - left >= dwell_ms), "a flap within the dwell");
                prop_assert!(!hysteresis || capacity <= 0.0 || reached >= TICKS);
            }
            if damping == Damping::default() {
                prop_assert_eq!(path.serves(), wanted);
            }
            let waits = path.wait(damping, now_ms).is_some();
            prop_assert!(!wanted || waits != path.serves(), "what is wanted and waits for nothing is the mode");
        }
    }
}

#[test]
fn without_metrics_there_is_no_decision_and_panic_mode_stays() {
    let mut decider = Decider::new(0, Settings::default(), Some(4));
    assert!(decider.decide(1_000, Some(4)).is_err());
    assert_eq!(decider.max_panic_pods(), 4);
    assert!(decider.decide(2_000, None).is_err());
}

#[test]
fn a_scale_down_delay_that_is_set_later_counts_from_then_on() {
    let desired = |delay_s: u32| {
        let settings = Settings {
            stable_window_s: 6,
            panic_threshold_percentage: 1_000.0,
            ..Settings::default()
        };
        let mut decider = Decider::new(0, settings.clone(), Some(1));
        decider.configure(Settings {
            scale_down_delay_s: delay_s,
            ..settings
        });
        decider.set_delay(0, 0);
        let mut desired = 0;
        for second in 1..20 {
            let concurrency = if second < 10 { 500.0 } else { 0.0 };
            let stat = Stat {
                concurrency,
                ..Stat::default()
            };
            decider.record(second * 1_000, &stat);
            desired = decider.decide(second * 1_000, Some(8)).unwrap().desired;
        }
        desired
    };
    assert!(desired(0) < 8);
    assert_eq!(desired(60), 8);
}
