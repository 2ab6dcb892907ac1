//! The explanation of the number of pods: from which values it follows, and at which it changes.

use dormouse_autoscaler::Decision;
use dormouse_fleet::Boottime;

use super::settings::{least, most};
use super::{WANT_NONE, number, seconds};
use crate::decisions::Why;
use crate::record::{AppRecord, ms};

/// The number of wanted pods, with its formula.
pub(super) fn scale(record: &AppRecord, now: Boottime) -> Vec<String> {
    let want = record.want;
    if record.decider.is_none() {
        return vec![WANT_NONE.to_owned()];
    }
    let Some(decision) = &record.decision else {
        return vec![format!("want {want}: no load is measured yet")];
    };
    vec![reason(record, decision, now), panic(record, decision)]
}

fn reason(record: &AppRecord, decision: &Decision, now: Boottime) -> String {
    let want = record.want;
    let load = format!(
        "ceil(stable {} / target {}) = {}",
        number(decision.stable),
        number(decision.target_value),
        decision.stable_pods
    );
    match Why::of(record) {
        Why::Panic => format!(
            "want {want}: panic has held {} for {}; load alone wants {load}",
            decision.max_panic_pods,
            held_for(now, decision)
        ),
        Why::Wake | Why::Start | Why::Load | Why::Sleep => format!("want {want} = {load}"),
        Why::Min => format!("want {want}: {}; load alone wants {load}", least(record)),
        Why::Share => format!("want {want} for its share of the traffic; load alone wants {load}"),
        Why::Max => format!("want {want}: {}; load alone wants {load}", most(record)),
        Why::Idle => {
            format!(
                "want {want}: the last pod stays until the app can sleep; load alone wants {load}"
            )
        }
        Why::Delay => format!(
            "want {want}: {} was wanted within the scale-down delay; load alone wants {load}",
            decision.desired
        ),
        Why::Rates => format!(
            "want {want}: the scale rates allow {} to {}; load alone wants {load}",
            decision.down_limit, decision.up_limit
        ),
    }
}

fn panic(record: &AppRecord, decision: &Decision) -> String {
    let ratio = format!(
        "ceil({} / {}) / {} ready = {}",
        number(decision.panic),
        number(decision.target_value),
        decision.ready.max(1),
        number(decision.panic_ratio)
    );
    let threshold = number(decision.panic_threshold);
    let panicking = record
        .decider
        .as_ref()
        .is_some_and(|decider| decider.panic_since_ms().is_some());
    match (panicking, decision.panic_ratio >= decision.panic_threshold) {
        (true, true) => format!("panic: {ratio}, not below {threshold}"),
        (true, false) => {
            format!("still panic, {ratio} has been below {threshold} for less than a window")
        }
        (false, _) => format!("no panic: {ratio}, below {threshold}"),
    }
}

fn held_for(now: Boottime, decision: &Decision) -> String {
    let ms = decision.panic_since_ms.map_or(0, |since| ms(now) - since);
    seconds(ms.max(0))
}

/// The loads at which the number of wanted pods changes.
pub(super) fn changes(record: &AppRecord) -> Vec<String> {
    let (want, settings) = (record.want, &record.settings);
    let Some(decision) = record.decision.as_ref().filter(|_| want > 0) else {
        return Vec::new();
    };
    let target = decision.target_value;
    let up = if settings.max_scale > 0 && want >= settings.max_scale {
        format!("never more: {}", most(record))
    } else {
        let limit = number(f64::from(want) * target);
        format!("{} pods when STABLE exceeds {limit}", want + 1)
    };
    let idle = record.pods_min().max(settings.pods_idle()).max(1);
    let down = (want > idle).then(|| {
        let limit = number(f64::from(want - 1) * target);
        let panic = if decision.panic_since_ms.is_some() {
            format!(", and panic is over for {} s", settings.stable_window_s)
        } else {
            String::new()
        };
        format!("{} when STABLE is {limit} or less{panic}", pods(want - 1))
    });
    let panic = decision.panic_since_ms.is_none().then(|| {
        let needed = (decision.panic_threshold * f64::from(decision.ready.max(1))).ceil();
        format!(
            "panic when PANIC exceeds {}",
            number((needed - 1.0) * target)
        )
    });
    [Some(up), down, panic].into_iter().flatten().collect()
}

fn pods(count: i32) -> String {
    match count {
        1 => "1 pod".to_owned(),
        count => format!("{count} pods"),
    }
}
