//! The explanation of an app's scale and mode: each value, its formula with the numbers, and what would change it.

mod decisions;
mod scale;
pub(crate) mod settings;
mod traffic;

use dormouse_autoscaler::Decision;
use dormouse_autoscaler::kpa::Activity;
use dormouse_autoscaler::path::{TICKS, Wait, margin};
use dormouse_cluster::{Key, Mode, State, VipIndex, vip};
use dormouse_fleet::Boottime;
use serde_json::{Value, json};

use crate::admission::{Limits, Scope};
use crate::apps::Apps;
use crate::plan;
use crate::progress::ProgressState;
use crate::record::{AppRecord, ms};
use crate::slept::Last;

const WANT_NONE: &str = "want 0: asleep; the first packet or request wakes it";
const PARKED: &str = "proxy: no pod is ready, so requests are parked in the activator";

/// An app's `Explanation` as JSON.
pub(crate) fn explain(record: &AppRecord, waits: Option<Scope>, now: Boottime) -> Value {
    let status = plan::status(record);
    let topics = [
        ("scale", scale::scale(record, now)),
        ("scales at", scale::changes(record)),
        ("mode", mode(record, now)),
        ("leaves at", mode_change(record)),
        ("sleeps", sleeps(record, now)),
        ("pods", pods(record)),
        ("rollout", rollout(record)),
        ("traffic", traffic::traffic(record)),
        ("limits", limits(record, waits)),
        ("failure", failure(record, now)),
    ];
    let topics: Vec<_> = topics
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| json!({"name": name, "lines": lines}))
        .collect();
    json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": format!("app/{}", record.key),
        "summary": summary(record, now),
        "topics": topics,
        "decisions": decisions::list(&record.decisions, now),
        "terms": decisions::terms(record),
        "values": {
            "vipIndex": record.vip,
            "state": status.state,
            "mode": status.mode,
            "ready": status.ready,
            "wanted": status.wanted,
            "entryVersion": record.published.version,
            "settledVersion": record.published.settled,
            "backends": record.backends().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "targetBurstCapacity": record.settings.target_burst_capacity,
            "decision": record.decision,
        },
    })
}

/// A sleeping app's `Explanation` as JSON.
pub(crate) fn asleep(app: &Key, index: u32, apps: &Apps, now: Boottime) -> Value {
    let address = vip::address_of(&apps.shared.config.ranges, VipIndex(index));
    let address = address.map_or_else(|| "unknown".to_owned(), |vip| vip.to_string());
    let mut topics = vec![
        json!({"name": "scale", "lines": [WANT_NONE]}),
        json!({"name": "mode", "lines": [PARKED]}),
        json!({"name": "sleeps", "lines": ["now"]}),
    ];
    let waits = apps.shared.admission.waits_for(index).map(waiting);
    topics.extend(waits.map(|line| json!({"name": "limits", "lines": [line]})));
    let last = apps.slept.get(index, app);
    json!({
        "apiVersion": "dormouse.dev/v1",
        "kind": "Explanation",
        "subject": format!("app/{app}"),
        "summary": format!("asleep, VIP {address}"),
        "topics": topics,
        "decisions": last.map_or(Vec::new(), |last| decisions::list(&last.decisions, now)),
        "terms": last.map_or(&[][..], |last| &last.terms),
        "values": {
            "vipIndex": index,
            "state": State::Asleep,
            "mode": Mode::Proxy,
            "ready": 0,
            "wanted": 0,
            "entryVersion": apps.sleep.get(index).map(|sleeper| sleeper.revision),
            "backends": [],
        },
    })
}

/// What is kept of an app that falls asleep.
pub(crate) fn last(record: &AppRecord) -> Last {
    Last {
        app: record.key.clone(),
        decisions: record.decisions.clone(),
        terms: decisions::terms(record),
    }
}

fn summary(record: &AppRecord, now: Boottime) -> String {
    let status = plan::status(record);
    let lasts = age(now, record.mode_since);
    match status.state {
        State::Asleep => format!("asleep, VIP {}", address(record)),
        state => {
            let reason = status
                .failure
                .map(|failure| format!(": {}", failure.reason));
            format!(
                "{state}, {} ready of {} wanted, mode {} for {lasts}{}",
                status.ready,
                status.wanted,
                status.mode,
                reason.unwrap_or_default()
            )
        }
    }
}

fn address(record: &AppRecord) -> String {
    record
        .app
        .as_ref()
        .and_then(|app| app.vip())
        .map_or_else(|| "unknown".to_owned(), |vip| vip.to_string())
}

fn waiting(scope: Scope) -> String {
    let flag = Limits::wakes_flag(scope);
    format!("wanted, and waits before it is woken: {flag} is reached")
}

/// The limits that hold the app back.
fn limits(record: &AppRecord, waits: Option<Scope>) -> Vec<String> {
    let wake = waits.map(waiting);
    let pods = record.held.map(|held| held.message(record.want));
    wake.into_iter().chain(pods).collect()
}

fn mode(record: &AppRecord, now: Boottime) -> Vec<String> {
    if record.ready() == 0 {
        return vec![PARKED.to_owned()];
    }
    if record.has_request_limit() {
        return vec![format!(
            "proxy: only the activator enforces containerConcurrency {}; the autoscaler alone would choose {}",
            record.settings.container_concurrency,
            if record.path.serves() {
                Mode::Serve
            } else {
                Mode::Proxy
            }
        )];
    }
    if record.is_sticky() {
        return vec![
            "proxy: only the activator reads what makes requests sticky (spec.sticky)".to_owned(),
        ];
    }
    let capacity = record.settings.target_burst_capacity;
    let mode = record.mode();
    if record.kpa.activity == Activity::Inactive {
        return vec![
            "proxy: the app is falling asleep; the activator must be in the path before its last pod is removed"
                .to_owned(),
        ];
    }
    if is(capacity, 0.0) {
        return vec![format!(
            "{mode}: target-burst-capacity is 0, so clients are forwarded directly to pods whenever one is ready"
        )];
    }
    if capacity < 0.0 {
        return vec![format!(
            "{mode}: target-burst-capacity is -1, so the activator always stays in the path"
        )];
    }
    let Some(decision) = &record.decision else {
        return vec![format!("{mode}: no load is measured yet")];
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
    let mut lines = vec![format!("{mode}: {formula}, {side}")];
    if excess >= 0 {
        lines.extend(damped(record, decision, now));
    }
    lines
}

/// Why an app with enough capacity stays in proxy mode: it waits as its settings say.
fn damped(record: &AppRecord, decision: &Decision, now: Boottime) -> Option<String> {
    let damping = record.settings.damping;
    Some(match record.path.wait(damping, ms(now))? {
        Wait::Margin(decisions) => format!(
            "waits for EBC {} or more in {decisions} more of {TICKS} decisions in a row (spec.scale.serveHysteresis)",
            number(margin(decision.target_burst_capacity))
        ),
        Wait::Dwell(rest) => format!(
            "waits for {} more: in proxy mode for at least {} (spec.scale.proxyDwell)",
            seconds(rest),
            seconds(damping.dwell_ms)
        ),
    })
}

/// The load, pods or settings at which the mode changes.
fn mode_change(record: &AppRecord) -> Vec<String> {
    let Some(decision) = &record.decision else {
        return Vec::new();
    };
    if record.has_request_limit() {
        return vec![
            "without containerConcurrency: scale.target sets the same target and no limit"
                .to_owned(),
        ];
    }
    if record.is_sticky() {
        return vec!["without spec.sticky, or without a traffic split".to_owned()];
    }
    if record.settings.target_burst_capacity <= 0.0 || record.ready() == 0 {
        return Vec::new();
    }
    let excess = |ready: i32| {
        (f64::from(ready) * decision.total_value - decision.target_burst_capacity - decision.panic)
            .floor()
    };
    if record.mode() == Mode::Serve {
        let spare = f64::from(decision.excess_burst_capacity) + decision.panic;
        return vec![format!(
            "proxy mode when the load exceeds {}",
            number(spare)
        )];
    }
    let pods = decision.pods_to_serve().unwrap_or(i32::MAX);
    let max = record.settings.max_scale;
    let reach = if max > 0 && pods > max {
        format!(", which max {max} forbids")
    } else {
        String::new()
    };
    let damped = if record.settings.damping.hysteresis {
        format!(
            "; and EBC {} in {TICKS} decisions (spec.scale.serveHysteresis)",
            number(margin(decision.target_burst_capacity))
        )
    } else {
        String::new()
    };
    vec![format!(
        "with {pods} ready pods (EBC {}){reach}, or target-burst-capacity ≤ {}{damped}",
        number(excess(pods)),
        decision.burst_capacity_to_serve()
    )]
}

fn sleeps(record: &AppRecord, now: Boottime) -> Vec<String> {
    let settings = &record.settings;
    if record.decider.is_none() {
        return vec!["now".to_owned()];
    }
    if settings.pods_idle() > 0 {
        return vec![format!("never: {}", settings::least(record))];
    }
    if record.pods_min() > 0 {
        return vec![format!(
            "not yet: its share of the traffic keeps {} pods for now",
            record.pods_min()
        )];
    }
    let for_ms = ms(now) - record.kpa.since_ms;
    match record.kpa.activity {
        Activity::Inactive => {
            let grace = seconds(
                settings
                    .scale_to_zero_grace_ms
                    .max(settings.pod_retention_ms),
            );
            let known = if record.proxied_everywhere() {
                "every node forwards to the activator"
            } else {
                "waiting until every node forwards to the activator"
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

fn pods(record: &AppRecord) -> Vec<String> {
    let line = |(key, member): (&Key, &crate::member::Member)| {
        let state = match (member.draining, member.address()) {
            (true, _) if member.deleting => "being deleted".to_owned(),
            (true, _) => "draining: waits until no node forwards to it".to_owned(),
            (false, Some(address)) => match &member.fault {
                Some(fault) => format!("ready at {address}, and fails: {}", fault.failure.reason),
                None => format!("ready at {address}"),
            },
            (false, None) => match member.seen.as_ref().and_then(|seen| seen.waiting.as_ref()) {
                Some(waiting) => format!("not ready: {}", waiting.brief()),
                None => "starting".to_owned(),
            },
        };
        format!(
            "{} on {}: {state}",
            key.name,
            member.node().unwrap_or("no node yet")
        )
    };
    // Those that another app with this VIP has left are not shown to the owner of this one.
    let uid = record
        .app
        .as_ref()
        .and_then(|app| app.metadata.uid.as_deref());
    let own = record
        .members
        .iter()
        .filter(|(_, member)| member.is_owned(uid));
    own.map(line).collect()
}

/// The rollout of the app's template, while it is not complete.
fn rollout(record: &AppRecord) -> Vec<String> {
    let progress = record.progress();
    if progress.state == ProgressState::Complete {
        return Vec::new();
    }
    let serving = record
        .rollout
        .ready_revision
        .filter(|_| record.falls_back());
    let serving = serving.map(|number| {
        format!(
            "revision {number} gets the wanted pods until one of revision {} is ready",
            progress.revision
        )
    });
    [progress.to_string()].into_iter().chain(serving).collect()
}

/// Why pods are missing, with the last lines of the app's output, and what its clients get.
fn failure(record: &AppRecord, now: Boottime) -> Vec<String> {
    let Some(failure) = plan::failure(record).or_else(|| record.backoff.last.clone()) else {
        return Vec::new();
    };
    let text = failure.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let wait = record.backoff.wait(now);
    lines.extend(wait.map(|wait| format!("the next pod starts in {} s", wait.as_secs())));
    if record.ready() > 0 {
        return lines;
    }
    let timeout = record.app.as_ref().map(|app| app.spec.wake_timeout());
    lines.extend(match record.backoff.pause() {
        Some(_) => Some("requests are answered 503 until a pod is ready".to_owned()),
        None => timeout.map(|limit| {
            format!(
                "requests are parked for {limit:?} at most (wakeTimeout), and then answered 503"
            )
        }),
    });
    lines
}

/// At most three decimals, without trailing zeros.
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
