//! What one file describes, as little of it as tells a change: names and digests.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use crate::source::manifests::object::{Key, Kind, Object};

/// Stands for something too large to keep. Of 128 bits with a key of this process: nobody finds two that agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digest([u8; 16]);

/// Makes digests.
#[derive(Debug, Default)]
pub(super) struct Digester {
    halves: [RandomState; 2],
}

impl Digester {
    /// What stands for a key.
    pub(super) fn key(&self, key: &Key) -> Digest {
        self.of(key)
    }

    /// What stands for objects.
    pub(super) fn objects(&self, objects: &BTreeMap<Key, Object>) -> BTreeMap<Key, Digest> {
        let mut text = Vec::new();
        let digests = objects.iter().map(|(key, object)| {
            text.clear();
            object.write(&mut text);
            (key.clone(), self.of(&*text))
        });
        digests.collect()
    }

    fn of(&self, it: &(impl Hash + ?Sized)) -> Digest {
        let [first, second] = self.halves.each_ref().map(|half| half.hash_one(it));
        Digest(((u128::from(first) << 64) | u128::from(second)).to_ne_bytes())
    }
}

/// A file's objects. A node may know hundreds of thousands: they are packed, and replaced as a whole.
#[derive(Debug, Default)]
pub(super) struct Claims {
    groups: Box<[Group]>,
}

/// The objects of one kind in one namespace.
#[derive(Debug)]
struct Group {
    kind: Kind,
    namespace: Box<str>,
    /// One after the other: each by itself would cost an allocation.
    names: Box<str>,
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where the name begins and ends; a file of 1 GiB fits.
    name: [u32; 2],
    object: Digest,
}

/// A cluster has several of them per service.
const _: () = assert!(size_of::<Slot>() == 24);

impl Claims {
    /// Packs these.
    pub(super) fn of(digests: &BTreeMap<Key, Digest>) -> Self {
        let all: Vec<_> = digests.iter().collect();
        let groups = all.chunk_by(|(one, _), (other, _)| {
            (one.kind, &one.namespace) == (other.kind, &other.namespace)
        });
        Self {
            groups: groups.filter_map(Group::of).collect(),
        }
    }

    /// Whether nothing is described.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// What stands for the object of that key.
    pub(super) fn find(&self, key: &Key) -> Option<Digest> {
        let wanted = (key.kind, &*key.namespace);
        let place = |group: &Group| (group.kind, &*group.namespace).cmp(&wanted);
        let group = &self.groups[self.groups.binary_search_by(place).ok()?];
        let place = |slot: &Slot| group.name(slot).cmp(&key.name);
        let index = group.slots.binary_search_by(place).ok()?;
        Some(group.slots[index].object)
    }

    /// All that is described, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Digest)> {
        self.groups.iter().flat_map(Group::iter)
    }
}

impl Group {
    fn of(all: &[(&Key, &Digest)]) -> Option<Self> {
        let (first, _) = all.first()?;
        let mut names = String::new();
        let mut slots = Vec::with_capacity(all.len());
        for (key, object) in all {
            let start = u32::try_from(names.len()).ok()?;
            names.push_str(&key.name);
            slots.push(Slot {
                name: [start, u32::try_from(names.len()).ok()?],
                object: **object,
            });
        }
        Some(Self {
            kind: first.kind,
            namespace: (*first.namespace).into(),
            names: names.into(),
            slots: slots.into(),
        })
    }

    fn name(&self, slot: &Slot) -> &str {
        let [start, end] = slot.name.map(|at| at as usize);
        &self.names[start..end]
    }

    fn iter(&self) -> impl Iterator<Item = (Key, Digest)> {
        let namespace: Arc<str> = (*self.namespace).into();
        self.slots.iter().map(move |slot| {
            let key = Key {
                kind: self.kind,
                namespace: Arc::clone(&namespace),
                name: self.name(slot).into(),
            };
            (key, slot.object)
        })
    }
}
