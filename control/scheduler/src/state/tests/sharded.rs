//! The state with a leader of shards, whose messages go to the shards at once: attempts end later than they begin.

use std::time::Duration;

use dormouse_scheduler_shard::{Limits, Member, Message, Shard};

use super::*;
use crate::shards::registration::{Registered, Role};

const STRAGGLER: Duration = Duration::from_millis(100);

/// A state, and the shards that it leads.
struct World {
    state: State,
    leader: Member,
    shards: Vec<(Member, Shard)>,
    /// The shard that answers no question.
    silent: Option<usize>,
    now: Timestamp,
}

fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        incarnation: 1,
        address: String::new(),
    }
}

impl World {
    fn new(shards: usize) -> Self {
        let (leader, profile) = (member("leader"), Profile::default());
        let limits = Limits {
            fan_out: 2,
            window: 1,
            attempt: Duration::from_mins(1),
            resend: Duration::from_mins(1),
            straggler: Some(STRAGGLER),
        };
        let mut lead = Lead::new(leader.clone(), &profile, limits);
        lead.lead(1);
        let mut world = Self {
            state: State::with_shards(profile.clone(), lead),
            leader,
            shards: Vec::new(),
            silent: None,
            now: at(0),
        };
        for number in 0..shards {
            let me = member(&format!("shard-{number}"));
            let shard = Shard::new(me.clone(), profile.clone());
            world.shards.push((me, shard));
        }
        let registered = world.shards.iter().map(|(me, _)| {
            let lease = Duration::from_hours(1);
            Registered::new(me.clone(), Role::Shard, lease)
        });
        let registered = registered.collect();
        let lead = world.state.lead().unwrap();
        lead.set_members(world.now, registered, &[]);
        world
    }

    fn apply(&mut self, change: &Change) {
        self.state.apply(self.now, change);
        self.exchange();
    }

    /// Delivers messages until there are none.
    fn exchange(&mut self) {
        loop {
            let lead = self.state.lead().unwrap();
            let sent = lead.outputs(self.now);
            if sent.is_empty() {
                return;
            }
            for (to, message) in sent {
                let number = self.shards.iter().position(|(one, _)| *one == to).unwrap();
                if self.silent == Some(number) && matches!(message, Message::Ask { .. }) {
                    continue;
                }
                let (me, shard) = &mut self.shards[number];
                for (back, answer) in shard.receive(&self.leader, message) {
                    assert_eq!(back, self.leader);
                    let lead = self.state.lead().unwrap();
                    lead.receive(self.now, me, answer);
                }
            }
        }
    }

    /// The next work; its attempt begins, and ends if all shards answer.
    fn next(&mut self) -> Option<Work> {
        self.exchange();
        self.step().or_else(|| {
            self.exchange();
            self.step()
        })
    }

    fn step(&mut self) -> Option<Work> {
        self.state.step(self.now).map(|step| match step {
            Step::Write(work) => *work,
            other => panic!("{other:?}"),
        })
    }

    /// Lets the time pass after which shards are left out.
    fn wait(&mut self) {
        self.now = self.now.checked_add(STRAGGLER * 2).unwrap();
        self.state.tick(self.now);
        self.exchange();
    }
}

fn node_of_work(work: &Work) -> &str {
    match &work.verdict {
        Verdict::Placed(node) => node,
        Verdict::Rejected(rejection) => panic!("{rejection:?}"),
    }
}

#[test]
fn pods_are_bound_one_after_the_other_until_no_node_of_any_shard_fits() {
    let mut world = World::new(3);
    for name in ["n1", "n2", "n3", "n4"] {
        world.apply(&node(name, 1));
    }
    for name in ["a", "b", "c", "d", "e"] {
        world.apply(&change(&pod(name)));
    }
    let mut nodes = Vec::new();
    for _ in 0..4 {
        let work = world.next().unwrap();
        nodes.push(node_of_work(&work).to_owned());
        let attempt = work.attempt.unwrap();
        assert_eq!(attempt.missing(), 0);
        world.state.finish(world.now, attempt, Outcome::Bound);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3", "n4"]);
    let work = world.next().unwrap();
    let Verdict::Rejected(rejection) = work.verdict else {
        panic!("no node is left");
    };
    assert!(
        rejection
            .message
            .starts_with("0/4 nodes are available: 4 Too many pods."),
        "{}",
        rejection.message
    );
    let attempt = work.attempt.unwrap();
    world.state.finish(world.now, attempt, Outcome::Rejected);
    assert!(world.next().is_none());
    world.apply(&node("n5", 1));
    world.now = at(60);
    world.state.tick(world.now);
    assert_eq!(node_of_work(&world.next().unwrap()), "n5");
}

#[test]
fn a_binding_that_fails_frees_its_node() {
    let mut world = World::new(2);
    world.apply(&node("n1", 1));
    world.apply(&change(&pod("a")));
    let attempt = world.next().unwrap().attempt.unwrap();
    world.state.finish(world.now, attempt, Outcome::Failed);
    world.now = at(60);
    assert_eq!(node_of_work(&world.next().unwrap()), "n1");
}

#[test]
fn a_pod_of_higher_priority_evicts_one_on_a_node_of_any_shard() {
    let mut world = World::new(2);
    world.apply(&node("n1", 1));
    world.apply(&change(&on("low", "n1")));
    let high = pod_with("high", &json!({"spec": {"priority": 9}}));
    world.apply(&change(&high));
    let work = world.next().unwrap();
    let Verdict::Rejected(rejection) = work.verdict else {
        panic!("the node is full");
    };
    assert_eq!(rejection.nominated.as_deref(), Some("n1"));
    let eviction = rejection.eviction.unwrap();
    assert_eq!(eviction.victims[0].key, key("low"));
    let attempt = work.attempt.unwrap();
    world.state.finish(world.now, attempt, Outcome::Rejected);
    // Others do not get the node.
    world.apply(&Change::Pod(Key::new("default", "low"), None));
    world.apply(&change(&pod("other")));
    world.now = at(60);
    world.state.tick(world.now);
    assert_eq!(
        world.next().unwrap().pod.metadata.name.as_deref(),
        Some("high")
    );
}

#[test]
fn a_pod_that_is_placed_directly_and_comes_to_the_queue_meanwhile_gets_one_node() {
    let mut world = World::new(2);
    world.apply(&node("n1", 5));
    world.apply(&node("n2", 5));
    assert_eq!(world.state.place(world.now, &pod("a")), None);
    world.apply(&change(&pod("a")));
    let work = world.next().unwrap();
    let placed = world.state.take_placed();
    assert_eq!(placed, [(key("a"), Ok(node_of_work(&work).to_owned()))]);
    assert!(world.next().is_none());
}

#[test]
fn a_direct_placement_without_a_node_has_the_reason() {
    let mut world = World::new(2);
    world.apply(&node("n1", 0));
    assert_eq!(world.state.place(world.now, &pod("a")), None);
    world.exchange();
    assert!(world.step().is_none());
    let placed = world.state.take_placed();
    let reason = placed[0].1.as_ref().unwrap_err();
    assert!(reason.contains("Too many pods"), "{reason}");
}

#[test]
fn a_pod_that_is_bound_or_deleted_during_its_attempt_gets_no_other_node() {
    let mut world = World::new(2);
    world.apply(&node("n1", 5));
    world.apply(&node("n2", 5));
    world.silent = Some(0);
    for gone in [
        change(&on("a", "n1")),
        Change::Pod(Key::new("default", "a"), None),
    ] {
        world.apply(&change(&pod("a")));
        assert!(world.next().is_none());
        world.apply(&gone);
        world.silent = None;
        world.wait();
        assert!(world.next().is_none());
        world.apply(&Change::Pod(Key::new("default", "a"), None));
        world.silent = Some(0);
    }
    world.silent = None;
    world.apply(&change(&pod("b")));
    assert!(world.next().is_some());
}

#[test]
fn a_decision_without_a_shard_says_that_it_is_inexact() {
    let mut world = World::new(2);
    for number in 0..8 {
        world.apply(&node(&format!("n{number}"), 1));
    }
    world.silent = Some(1);
    world.apply(&change(&pod("a")));
    assert!(world.next().is_none());
    world.wait();
    let work = world.next().unwrap();
    node_of_work(&work);
    let attempt = work.attempt.unwrap();
    assert_eq!(attempt.missing(), 1);
    assert_eq!(world.state.lead().unwrap().seen().inexact, 1);
    let explained = world.state.explanation(world.now, &key("a")).unwrap();
    let explained = explained.topics();
    assert!(
        explained[0].lines[1].contains("without 1 shards"),
        "{explained:?}"
    );
    // No node of the other shard has the name.
    let picky = pod_with("b", &json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
    world.apply(&change(&picky));
    assert!(world.next().is_none());
    world.wait();
    let Verdict::Rejected(rejection) = world.next().unwrap().verdict else {
        panic!("no node matches");
    };
    let note = "(inexact: 1 shards had not answered in time)";
    assert!(rejection.message.ends_with(note), "{}", rejection.message);
}
