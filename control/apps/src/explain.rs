//! Why an app is as it is: each value, the formula with its numbers, and what would change it.

use dormouse_autoscaler::Decision;
use dormouse_autoscaler::kpa::Activity;
use dormouse_cluster::{Mode, State};
use dormouse_fleet::Boottime;
use serde_json::{Value, json};

use crate::plan;
use crate::slot::{Slot, ms};

/// An app's explanation, as the people's commands read it.
pub(crate) fn explain(slot: &Slot, now: Boottime) -> Value {
    let status = plan::status(slot);
    let topics = [
        ("scale", scale(slot, now)),
        ("mode", mode(slot)),
        ("leaves at", leaves(slot)),
        ("sleeps", sleeps(slot, now)),
        ("pods", pods(slot)),
        ("trouble", trouble(slot, now)),
    ];
    let topics: Vec<_> = topics
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| json!({"name": name, "lines": lines}))
        .collect();
    json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": format!("app/{}", slot.key),
        "summary": summary(slot, now),
        "topics": topics,
        "values": {
            "vipIndex": slot.vip,
            "state": status.state,
            "mode": status.mode,
            "ready": status.ready,
            "wanted": status.wanted,
            "entryVersion": slot.published.version,
            "settledVersion": slot.published.settled,
            "backends": slot.backends().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "targetBurstCapacity": slot.settings.target_burst_capacity,
            "decision": slot.decision,
        },
    })
}

fn summary(slot: &Slot, now: Boottime) -> String {
    let status = plan::status(slot);
    let lasts = age(now, slot.mode_since);
    match status.state {
        State::Asleep => format!("asleep, VIP {}", vip(slot)),
        state => format!(
            "{state}, {} ready of {} wanted, mode {} for {lasts}",
            status.ready, status.wanted, status.mode
        ),
    }
}

fn vip(slot: &Slot) -> String {
    slot.app
        .as_ref()
        .and_then(|app| app.vip())
        .map_or_else(|| "unknown".to_owned(), |vip| vip.to_string())
}

fn scale(slot: &Slot, now: Boottime) -> Vec<String> {
    let Some(decider) = &slot.decider else {
        return vec![
            "want 0: nothing has been asked of it; the first packet or request wakes it".to_owned(),
        ];
    };
    let want = slot.want;
    let Some(decision) = &slot.decision else {
        return vec![format!("want {want}: nothing is measured yet")];
    };
    let panicking = decider.panic_since_ms().is_some();
    let load = format!(
        "ceil(stable {} / target {}) = {}",
        number(decision.stable),
        number(decision.target_value),
        decision.stable_pods
    );
    let (min, max) = (slot.settings.min_scale, slot.settings.max_scale);
    let first = if want == decision.desired && panicking {
        format!(
            "want {want}: panic holds {} since {}; load alone asks {load}",
            decision.max_panic_pods,
            since(now, decision)
        )
    } else if want == decision.stable_pods {
        format!("want {want} = {load}")
    } else if want == min && want > decision.desired {
        format!("want {want} = min; load alone asks {load}")
    } else if max > 0 && want == max && decision.desired > max {
        format!("want {want} = max; load alone asks {load}")
    } else if decision.desired == 0 && want > 0 {
        format!("want {want}: the last pod stays until the app may sleep; load alone asks {load}")
    } else if decision.desired != decision.desired_before_delay {
        format!(
            "want {want}: {} was wanted within the scale-down delay; load alone asks {load}",
            decision.desired
        )
    } else {
        format!(
            "want {want}: the rates allow {} to {}; load alone asks {load}",
            decision.down_limit, decision.up_limit
        )
    };
    let ratio = format!(
        "ceil({} / {}) / {} ready = {}",
        number(decision.panic),
        number(decision.target_value),
        decision.ready.max(1),
        number(decision.panic_ratio)
    );
    let threshold = number(decision.panic_threshold);
    let second = match (panicking, decision.panic_ratio >= decision.panic_threshold) {
        (true, true) => format!("panic: {ratio}, not below {threshold}"),
        (true, false) => {
            format!("still panic, {ratio} is below {threshold} for less than a window")
        }
        (false, _) => format!("no panic: {ratio}, below {threshold}"),
    };
    vec![first, second]
}

fn since(now: Boottime, decision: &Decision) -> String {
    let ms = decision.panic_since_ms.map_or(0, |since| ms(now) - since);
    seconds(ms.max(0))
}

fn mode(slot: &Slot) -> Vec<String> {
    if slot.ready() == 0 {
        return vec!["proxy: no pod is ready, so requests wait in the activator".to_owned()];
    }
    let capacity = slot.settings.target_burst_capacity;
    let mode = slot.mode();
    if slot.kpa.activity == Activity::Inactive {
        return vec![
            "proxy: the app is falling asleep, and the activator must be in the path before"
                .to_owned(),
        ];
    }
    if is(capacity, 0.0) {
        return vec![format!(
            "{mode}: target-burst-capacity is 0, so clients go straight to pods whenever one is ready"
        )];
    }
    if capacity < 0.0 {
        return vec![format!(
            "{mode}: target-burst-capacity is -1, so the activator always stays in the path"
        )];
    }
    let Some(decision) = &slot.decision else {
        return vec![format!("{mode}: nothing is measured yet")];
    };
    let excess = decision.excess_burst_capacity;
    let formula = format!(
        "excess burst capacity = floor({}×{} - {} - {}) = {excess}",
        decision.ready,
        number(decision.total_value),
        number(decision.target_burst_capacity),
        number(decision.panic)
    );
    let side = if excess < 0 { "below 0" } else { "not below 0" };
    vec![format!("{mode}: {formula}, {side}")]
}

/// What would take the activator out of the path, or put it back.
fn leaves(slot: &Slot) -> Vec<String> {
    let Some(decision) = &slot.decision else {
        return Vec::new();
    };
    if slot.settings.target_burst_capacity <= 0.0 || slot.ready() == 0 {
        return Vec::new();
    }
    let excess = |ready: i32| {
        (f64::from(ready) * decision.total_value - decision.target_burst_capacity - decision.panic)
            .floor()
    };
    if slot.mode() == Mode::Serve {
        let spare = f64::from(decision.excess_burst_capacity) + decision.panic;
        return vec![format!(
            "the activator comes back when the load passes {}",
            number(spare)
        )];
    }
    let pods = decision.pods_to_serve().unwrap_or(i32::MAX);
    let max = slot.settings.max_scale;
    let reach = if max > 0 && pods > max {
        format!(", which max {max} forbids")
    } else {
        String::new()
    };
    vec![format!(
        "with {pods} ready pods (EBC {}){reach}, or target-burst-capacity ≤ {}",
        number(excess(pods)),
        decision.burst_capacity_to_serve()
    )]
}

fn sleeps(slot: &Slot, now: Boottime) -> Vec<String> {
    let settings = &slot.settings;
    if slot.decider.is_none() {
        return vec!["now".to_owned()];
    }
    if settings.min_scale > 0 {
        return vec![format!("never: min {}", settings.min_scale)];
    }
    let for_ms = ms(now) - slot.kpa.since_ms;
    match slot.kpa.activity {
        Activity::Inactive => {
            let grace = seconds(
                settings
                    .scale_to_zero_grace_ms
                    .max(settings.pod_retention_ms),
            );
            let known = if slot.proxied_everywhere() {
                "every node sends to the activator"
            } else {
                "waiting until every node sends to the activator"
            };
            vec![format!(
                "soon: idle for {}, of {grace}; {known}",
                seconds(for_ms)
            )]
        }
        _ => vec![format!(
            "after {} s without load, then {} of grace",
            settings.stable_window_s,
            seconds(
                settings
                    .scale_to_zero_grace_ms
                    .max(settings.pod_retention_ms)
            )
        )],
    }
}

fn pods(slot: &Slot) -> Vec<String> {
    let line = |(key, member): (&dormouse_cluster::Key, &crate::member::Member)| {
        let state = match (member.leaving, member.address()) {
            (true, _) if member.deleting => "being removed".to_owned(),
            (true, _) => "leaving: waits until no node can send to it".to_owned(),
            (false, Some(address)) => format!("ready at {address}"),
            (false, None) => "starting".to_owned(),
        };
        format!(
            "{} on {}: {state}",
            key.name,
            member.node().unwrap_or("no node yet")
        )
    };
    slot.members.iter().map(line).collect()
}

fn trouble(slot: &Slot, now: Boottime) -> Vec<String> {
    let Some((reason, message)) = &slot.backoff.last else {
        return Vec::new();
    };
    let wait = slot
        .backoff
        .wait(now)
        .map(|wait| format!("; the next pod starts in {} s", wait.as_secs()));
    vec![format!(
        "{} pods failed in a row, the last: {reason}: {message}{}",
        slot.backoff.failures(),
        wait.unwrap_or_default()
    )]
}

/// At most three decimals, and none where there are none.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn seconds(ms: i64) -> String {
    format!("{} s", number(ms as f64 / 1e3))
}

fn age(now: Boottime, since: Boottime) -> String {
    let seconds = now.since(since).as_secs();
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, _) => format!("{hours}h{minutes}m"),
    }
}

fn is(value: f64, literal: f64) -> bool {
    value.total_cmp(&literal).is_eq()
}
