//! What one file describes, as little of it as tells a change: names and digests.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::source::manifests::object::{Key, Kind, Object};

/// Stands for something too large to keep. Of 64 bits with a key of this process: nobody can look for two that agree,
/// and among a million two do by chance once in ten million folders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digest([u8; 8]);

/// Makes digests.
#[derive(Debug, Default)]
pub(super) struct Digester(RandomState);

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
        Digest(self.0.hash_one(it).to_ne_bytes())
    }
}

/// A file's objects, sorted by key. A node may know hundreds of thousands, in as many files: they are packed, and
/// replaced as a whole.
#[derive(Debug, Default)]
pub(super) struct Claims {
    slots: Box<[Slot]>,
    /// Namespaces and names, one after the other: each by itself would cost an allocation.
    text: Box<str>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where the namespace and the name begin and where the name ends; a file of 1 GiB fits.
    bounds: [u32; 3],
    kind: Kind,
    object: Digest,
}

/// A cluster has several of them per service.
const _: () = assert!(size_of::<Slot>() == 24);

impl Claims {
    /// Packs these.
    pub(super) fn of(digests: &BTreeMap<Key, Digest>) -> Self {
        let mut text = String::with_capacity(digests.keys().map(len).sum());
        let mut slots = Vec::with_capacity(digests.len());
        for (key, object) in digests {
            let parts = ["", &*key.namespace, &*key.name];
            let ends = parts.map(|part| {
                text.push_str(part);
                u32::try_from(text.len()).unwrap_or(u32::MAX)
            });
            slots.push(Slot {
                bounds: ends,
                kind: key.kind,
                object: *object,
            });
        }
        Self {
            slots: slots.into(),
            text: text.into(),
        }
    }

    /// Whether nothing is described.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What stands for the object of that key.
    pub(super) fn find(&self, key: &Key) -> Option<Digest> {
        let wanted = (key.kind, &*key.namespace, &*key.name);
        let place = |slot: &Slot| self.name(slot).cmp(&wanted);
        let index = self.slots.binary_search_by(place).ok()?;
        Some(self.slots[index].object)
    }

    /// All that is described, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Digest)> {
        self.slots.iter().map(|slot| {
            let (kind, namespace, name) = self.name(slot);
            let key = Key {
                kind,
                namespace: namespace.into(),
                name: name.into(),
            };
            (key, slot.object)
        })
    }

    fn name(&self, slot: &Slot) -> (Kind, &str, &str) {
        let [namespace, name, end] = slot.bounds.map(|at| at as usize);
        (
            slot.kind,
            &self.text[namespace..name],
            &self.text[name..end],
        )
    }
}

fn len(key: &Key) -> usize {
    key.namespace.len() + key.name.len()
}
