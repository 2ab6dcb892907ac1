//! A shard: nodes with their pods. It answers questions about them, and holds a node for a pod until the leader confirms.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dormouse_scheduler_decide::{Part, PartId, Pod, PodKey, Profile, Question, Snapshot};

use crate::change::Change;
use crate::message::{AttemptId, Claimed, Message, Sent, Task};
use crate::view::{Epoch, Member, View};

/// A shard.
pub struct Shard {
    me: Member,
    profile: Profile,
    snapshot: Snapshot,
    view: Option<View>,
    /// The stream of the leader's changes, and the number of those that are applied.
    applied: (Epoch, u64),
    attempts: BTreeMap<u64, Attempt>,
    /// Pods on nodes that the leader has not confirmed, by the attempt.
    claims: BTreeMap<u64, PodKey>,
    /// Attempts whose claim has no effect, from the oldest one in flight on.
    released: BTreeSet<u64>,
    oldest: u64,
    /// Counts changes of nodes and their pods.
    clock: u64,
    /// The last change of each node.
    versions: HashMap<String, u64>,
    bound: HashMap<PodKey, String>,
}

/// An attempt that may still go on.
struct Attempt {
    id: AttemptId,
    pod: Pod,
    part: Part,
    /// The clock at the first question.
    began: u64,
}

impl Shard {
    /// A shard without nodes. All nodes are looked at.
    pub fn new(me: Member, profile: Profile) -> Self {
        Self {
            me,
            profile,
            snapshot: Snapshot::default(),
            view: None,
            applied: (Epoch::default(), 0),
            attempts: BTreeMap::new(),
            claims: BTreeMap::new(),
            released: BTreeSet::new(),
            oldest: 0,
            clock: 0,
            versions: HashMap::new(),
            bound: HashMap::new(),
        }
    }

    /// The number of nodes.
    pub fn nodes_len(&self) -> usize {
        self.snapshot.nodes_len()
    }

    /// The epoch of the view.
    pub fn epoch(&self) -> Option<Epoch> {
        self.view.as_ref().map(|view| view.epoch)
    }

    /// A message. What an earlier view or leader sent has no effect.
    pub fn receive(&mut self, from: &Member, message: Message) -> Sent {
        let to = from.clone();
        let answer = match message {
            Message::View(view) => self.adopt(view).map(Message::Adopted),
            Message::Changes {
                stream,
                first,
                changes,
            } => self.change(stream, first, &changes),
            Message::Ask {
                task,
                round,
                question,
                excluded,
            } if self.is_current(task.id) => {
                let part = self.part().filter(|part| !excluded.contains(part));
                part.and_then(|part| self.ask(part, &task, round, &question))
            }
            Message::Claim { id, nth } if self.is_current(id) => self.claim(id, nth),
            _ => None,
        };
        answer.map(|answer| (to, answer)).into_iter().collect()
    }

    fn is_current(&self, id: AttemptId) -> bool {
        self.epoch() == Some(id.epoch)
    }

    fn adopt(&mut self, view: View) -> Option<Epoch> {
        let epoch = view.epoch;
        let now = self.view.as_ref().map(|view| view.epoch);
        if now > Some(epoch) {
            return None;
        }
        if now != Some(epoch) {
            self.attempts.clear();
            self.view = Some(view);
        }
        Some(epoch)
    }

    /// Applies changes that are not applied yet. Those after a gap are not: the leader sends them again.
    fn change(&mut self, stream: Epoch, first: u64, changes: &[Change]) -> Option<Message> {
        if stream < self.applied.0 {
            return None;
        }
        if stream > self.applied.0 {
            self.applied = (stream, 0);
        }
        let (_, applied) = self.applied;
        if first > applied {
            return None;
        }
        for (number, change) in (first..).zip(changes) {
            if number >= applied {
                self.apply(change);
                self.applied.1 = number + 1;
            }
        }
        let len = self.applied.1;
        Some(Message::Applied { stream, len })
    }

    fn apply(&mut self, change: &Change) {
        self.clock += 1;
        match change {
            Change::Reset => {
                self.attempts.clear();
                self.claims.clear();
                self.released.clear();
                self.versions.clear();
                self.bound.clear();
                self.oldest = 0;
            }
            Change::Node(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                self.versions.insert(name, self.clock);
            }
            Change::NodeGone(name) => _ = self.versions.remove(name),
            Change::Pod(pod) => {
                if let Ok(pod) = Pod::parse(pod) {
                    self.touch(pod.key());
                    self.claims.retain(|_, claimed| claimed != pod.key());
                    self.note(&pod);
                }
            }
            Change::PodGone(key) => {
                self.touch(key);
                self.claims.retain(|_, claimed| claimed != key);
                self.bound.remove(key);
            }
            Change::Release(serial) => self.release(*serial),
            Change::Image(..) | Change::Thing(_) | Change::ThingGone(..) => {}
        }
        // The leader has parsed all objects.
        _ = change.apply(&mut self.snapshot);
    }

    /// The node of a pod changes.
    fn touch(&mut self, key: &PodKey) {
        if let Some(node) = self.bound.get(key) {
            self.versions.insert(node.clone(), self.clock);
        }
    }

    fn note(&mut self, pod: &Pod) {
        let node = match pod.node_name() {
            "" => pod.nominated_node(),
            node => node,
        };
        self.bound.insert(pod.key().clone(), node.to_owned());
        self.versions.insert(node.to_owned(), self.clock);
    }

    /// The claim of an attempt has no effect, now or later.
    fn release(&mut self, serial: u64) {
        self.attempts.remove(&serial);
        self.released.insert(serial);
        if let Some(key) = self.claims.remove(&serial) {
            self.touch(&key);
            self.bound.remove(&key);
            self.snapshot.remove_pod(&key);
        }
    }

    fn ask(
        &mut self,
        part: PartId,
        task: &Task,
        round: u32,
        question: &Question,
    ) -> Option<Message> {
        let id = task.id;
        self.oldest = self.oldest.max(task.oldest);
        let oldest = self.oldest;
        self.attempts.retain(|serial, _| *serial >= oldest);
        self.released.retain(|serial| *serial >= oldest);
        if id.serial < oldest || self.released.contains(&id.serial) {
            return None;
        }
        self.snapshot.refresh();
        if *question == Question::Count {
            let part = Part::new(part);
            let pod = Pod::parse(&task.pod).ok()?;
            let began = self.clock;
            let attempt = Attempt {
                id,
                pod,
                part,
                began,
            };
            self.attempts.insert(id.serial, attempt);
        }
        let attempt = self.attempts.get_mut(&id.serial)?;
        let answer = attempt
            .part
            .answer(&self.profile, &self.snapshot, &attempt.pod, question);
        Some(Message::Answer {
            id,
            round,
            answer: Some(Box::new(answer)),
            excluded: BTreeSet::new(),
        })
    }

    /// The number of this shard in the view.
    fn part(&self) -> Option<PartId> {
        self.view.as_ref()?.part_of(&self.me)
    }

    /// Puts a pod on one of the best nodes, unless that has changed since it was looked at.
    fn claim(&mut self, id: AttemptId, nth: usize) -> Option<Message> {
        let attempt = self.attempts.remove(&id.serial)?;
        if attempt.id != id {
            return None;
        }
        let node = attempt.part.best().nth(nth).map(ToOwned::to_owned);
        let is_same = |node: &String| {
            let version = self.versions.get(node);
            version.is_some_and(|version| *version <= attempt.began)
        };
        let claimed = match node.filter(is_same) {
            None => Claimed::Conflict,
            Some(node) => {
                self.clock += 1;
                let pod = attempt.pod.bound(node.as_str(), None);
                self.note(&pod);
                self.claims.insert(id.serial, pod.key().clone());
                self.snapshot.set_pod(pod);
                Claimed::Node(node)
            }
        };
        Some(Message::Claimed { id, claimed })
    }
}
