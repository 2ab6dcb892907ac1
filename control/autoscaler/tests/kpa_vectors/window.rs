//! Scenarios of windows and of the scale-down delay.

use dormouse_autoscaler::delay::Delay;
use dormouse_autoscaler::window::{Aggregation, Window};
use serde_json::{Value, json};

use crate::tally::Tally;

/// One sliding window of samples.
pub(crate) fn window(scenario: &Value, tally: &mut Tally) {
    let set = &scenario["set"];
    let mut window = Window::new(seconds(&set["window_s"]), aggregation(set));
    for event in scenario["ev"].as_array().unwrap() {
        let at = event[1].as_i64().unwrap();
        match event[0].as_str().unwrap() {
            "r" => window.record(at, event[2].as_f64().unwrap()),
            "w" => window.resize(at, seconds(&event[2])),
            "q" => tally.check(
                &event[1],
                &[event[2].clone(), event[3].clone()],
                &[
                    json!(window.average(at)),
                    json!(i32::from(window.is_empty(at))),
                ],
            ),
            other => panic!("unknown event {other}"),
        }
    }
}

/// The sliding maximum of the scale-down delay.
pub(crate) fn delay(scenario: &Value, tally: &mut Tally) {
    let mut delay = Delay::new(seconds(&scenario["set"]["scale_down_delay_s"]));
    for event in scenario["ev"].as_array().unwrap() {
        let value = i32::try_from(event[2].as_i64().unwrap()).unwrap();
        let largest = delay.record(event[1].as_i64().unwrap(), value);
        tally.check(&event[1], &[event[3].clone()], &[json!(largest)]);
    }
}

/// The aggregation of the settings.
pub(crate) fn aggregation(set: &Value) -> Aggregation {
    match set["aggregation"].as_str() {
        Some("weighted-exponential") => Aggregation::WeightedExponential,
        _ => Aggregation::Linear,
    }
}

/// A whole number of seconds.
pub(crate) fn seconds(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}
