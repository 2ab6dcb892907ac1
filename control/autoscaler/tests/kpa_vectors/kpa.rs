//! Scenarios of the decider together with the reconciler.

use dormouse_autoscaler::decider::Decider;
use dormouse_autoscaler::kpa::{self, Activity, Inputs, Mode, Probe, Reason, Reconciler};
use serde_json::{Value, json};

use crate::autoscaler::{self, from, integer, merge, panic_state, pods, settings, stat};
use crate::tally::Tally;

/// Scenarios of the number of activators.
pub(crate) fn activators(scenario: &Value, tally: &mut Tally) {
    let number = |name: &str| scenario[name].as_f64().unwrap();
    let answer = kpa::activators(
        integer(&scenario["ready"]),
        number("total_value"),
        number("target_burst_capacity"),
        number("activator_capacity"),
    );
    tally.check(&json!(0), &[scenario["out"].clone()], &[json!(answer)]);
}

/// A running scenario.
struct Run {
    set: Value,
    ready: Option<i32>,
    replicas: i32,
    in_path: bool,
    resize: bool,
    decider: Option<Decider>,
    reconciler: Option<Reconciler>,
}

/// Runs one scenario.
pub(crate) fn run(scenario: &Value, tally: &mut Tally) {
    autoscaler::derived(
        &scenario["set"],
        &scenario["derived"],
        &scenario["id"],
        tally,
    );
    let init = &scenario["init"];
    let fresh = init["fresh"].as_bool().unwrap();
    let mut run = Run {
        set: scenario["set"].clone(),
        ready: pods(&init["ready"]),
        replicas: integer(&init["replicas"]),
        in_path: true,
        resize: false,
        decider: None,
        reconciler: (!fresh).then(|| reconciler(init)),
    };
    for event in scenario["ev"].as_array().unwrap() {
        run.event(event, tally);
    }
}

impl Run {
    fn event(&mut self, event: &Value, tally: &mut Tally) {
        let at = event[1].as_i64().unwrap();
        match event[0].as_str().unwrap() {
            "p" => self.ready = pods(&event[2]),
            "b" => self.in_path = event[2] == 1,
            "x" => self.decider = None,
            "a" => self
                .reconciler
                .as_mut()
                .unwrap()
                .set_activator_in_path(at, event[2] == 1),
            "new" => {
                let made = Decider::new(at, settings(&self.set), self.ready);
                let mut answer = panic_state(&made);
                answer.extend(status(&made));
                tally.check(&event[1], &from(event, 2), &answer);
                self.decider = Some(made);
            }
            "c" => {
                merge(&mut self.set, &event[2]);
                autoscaler::derived(&self.set, &event[3], &event[1], tally);
                self.resize = true;
                if let Some(decider) = &mut self.decider {
                    decider.configure(settings(&self.set));
                }
            }
            "r" => self.sample(event, at, tally),
            "s" => self.tick(event, at, tally),
            "k" => self.reconcile(event, at, tally),
            other => panic!("unknown event {other}"),
        }
    }

    fn sample(&mut self, event: &Value, at: i64, tally: &mut Tally) {
        let Some(decider) = &mut self.decider else {
            return;
        };
        let stat = stat(event);
        // The KPA then decides at once.
        let pokes = decider.status().desired == 0 && stat.concurrency != 0.0;
        decider.record(at, &stat);
        if event[6] != 0 {
            tally.check(&event[1], &[json!(event[6] == 2)], &[json!(pokes)]);
        }
    }

    fn tick(&mut self, event: &Value, at: i64, tally: &mut Tally) {
        let decider = self.decider.as_mut().unwrap();
        let before = decider.status();
        let mut answer = autoscaler::tick(decider, at, self.ready);
        answer.extend(status(decider));
        let after = decider.status();
        // Then the KPA reconciles the app.
        let differs = before.desired != after.desired
            || (before.excess_burst_capacity < 0) != (after.excess_burst_capacity < 0);
        answer.push(json!(i32::from(differs)));
        tally.check(&event[1], &from(event, 2), &answer);
    }

    fn reconcile(&mut self, event: &Value, at: i64, tally: &mut Tally) {
        let settings = settings(&self.set);
        let inputs = Inputs {
            now_ms: at,
            status: self.decider.as_ref().map(Decider::status),
            ready: self.ready.unwrap_or(0),
            activator_in_path: self.in_path,
        };
        let reconciler = self.reconciler.get_or_insert_with(|| Reconciler::new(at));
        let outcome = reconciler.reconcile(&settings, &inputs);
        if outcome.applied {
            self.replicas = outcome.desired;
        }
        let answer = vec![
            json!(outcome.desired),
            json!(if outcome.mode == Mode::Serve {
                "S"
            } else {
                "P"
            }),
            json!(outcome.activators),
            json!(activity(reconciler.activity)),
            json!(reason(reconciler.reason)),
            json!(reconciler.since_ms),
            json!(i32::from(reconciler.initialized)),
            json!(self.replicas),
            json!(reconciler.desired),
            json!(outcome.requeue_ms),
            json!(probe(outcome.probe)),
        ];
        tally.check(&event[1], &from(event, 2), &answer);
        if let Some(decider) = self
            .decider
            .as_mut()
            .filter(|_| std::mem::take(&mut self.resize))
        {
            decider.resize(at);
        }
    }
}

fn status(decider: &Decider) -> [Value; 2] {
    let status = decider.status();
    [json!(status.desired), json!(status.excess_burst_capacity)]
}

fn reconciler(init: &Value) -> Reconciler {
    let activity = match init["active"].as_str().unwrap() {
        "T" => (Activity::Active, Reason::None),
        "F" => (Activity::Inactive, Reason::NoTraffic),
        _ => (Activity::Activating, Reason::Queued),
    };
    Reconciler {
        activity: activity.0,
        reason: activity.1,
        since_ms: whole(init["active_since_ms"].as_i64().unwrap()),
        initialized: init["initialized"].as_bool().unwrap(),
        desired: init["desired_scale"]
            .as_i64()
            .map(|desired| i32::try_from(desired).unwrap()),
        mode: init["mode"].as_str().map(|mode| {
            if mode == "S" {
                Mode::Serve
            } else {
                Mode::Proxy
            }
        }),
        activator_since_ms: init["activator_since_ms"].as_i64().map(whole),
    }
}

/// Stored times have whole seconds.
fn whole(ms: i64) -> i64 {
    ms.div_euclid(1_000) * 1_000
}

fn activity(activity: Activity) -> &'static str {
    match activity {
        Activity::Active => "T",
        Activity::Inactive => "F",
        Activity::Activating => "U",
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::None => "",
        Reason::Queued => "Queued",
        Reason::NoTraffic => "NoTraffic",
        Reason::TimedOut => "TimedOut",
    }
}

fn probe(probe: Probe) -> i32 {
    match probe {
        Probe::NotNeeded => 0,
        Probe::Passed => 1,
        Probe::Failed => 2,
    }
}
