//! Messages of a leader whose term has passed have no effect on shards and relays, whatever the order in which they arrive.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_scheduler_decide::{Profile, Question};
use dormouse_scheduler_shard::{
    AttemptId, Change, Epoch, Member, Message, Object, Relay, Sent, Shard, Task, View,
};
use k8s_openapi::api::core::v1::Pod;

fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        incarnation: 1,
        address: String::new(),
    }
}

fn view(leader: &str, term: u64) -> View {
    View {
        epoch: Epoch { term, view: 1 },
        leader: member(leader),
        relays: vec![member("relay")],
        shards: vec![member("shard")],
        fan_out: 2,
    }
}

fn task(term: u64) -> Task {
    Task {
        id: AttemptId {
            epoch: Epoch { term, view: 1 },
            serial: 1,
        },
        pod: Object::new(Pod::default()),
        oldest: 1,
    }
}

fn changes(term: u64) -> Message {
    Message::Changes {
        stream: Epoch { term, view: 1 },
        first: 0,
        changes: vec![Change::Reset],
    }
}

#[test]
fn a_shard_follows_the_leader_of_the_latest_term_only() {
    let mut shard = Shard::new(member("shard"), Profile::default());
    let (old, new) = (member("old"), member("new"));
    let adopted = shard.receive(&new, Message::View(view("new", 2)));
    let epoch = Epoch { term: 2, view: 1 };
    assert_eq!(adopted, [(new.clone(), Message::Adopted(epoch))]);
    let len = 1;
    let applied = Message::Applied { stream: epoch, len };
    assert_eq!(shard.receive(&new, changes(2)), [(new, applied)]);
    let ask = Message::Ask {
        task: task(1),
        round: 1,
        question: Question::Count,
        excluded: BTreeSet::new(),
    };
    let claim = Message::Claim {
        id: task(1).id,
        nth: 0,
    };
    for late in [Message::View(view("old", 1)), changes(1), ask, claim] {
        assert_eq!(shard.receive(&old, late.clone()), Sent::new(), "{late:?}");
    }
    assert_eq!(shard.epoch(), Some(epoch));
}

#[test]
fn a_relay_follows_the_leader_of_the_latest_term_only() {
    let mut relay = Relay::new(member("relay"), Profile::default(), None);
    let now = Duration::ZERO;
    let (old, new) = (member("old"), member("new"));
    relay.receive(&new, Message::View(view("new", 2)), now);
    for late in [Message::View(view("old", 1)), Message::Attempt(task(1))] {
        let sent = relay.receive(&old, late.clone(), now);
        assert_eq!(sent, Sent::new(), "{late:?}");
    }
    assert_eq!(relay.epoch(), Some(Epoch { term: 2, view: 1 }));
}
