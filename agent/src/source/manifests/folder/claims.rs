//! The objects of one file, reduced to names and digests, which is enough to detect changes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::source::object::{Key, Kind, Object};

/// The digest of an object or key: 64 bits with a random key of the process, so collisions cannot be constructed, and occur
/// among a million objects by chance once in ten million folders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digest([u8; 8]);

/// Computes digests with the process's key.
#[derive(Debug, Default)]
pub(super) struct Digester(RandomState);

impl Digester {
    /// The digest of a key.
    pub(super) fn key(&self, key: &Key) -> Digest {
        self.of(key)
    }

    /// The digests of objects.
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

/// A file's objects, sorted by key; packed, because a node may have hundreds of thousands in as many files, and replaced as a
/// whole.
#[derive(Debug, Default)]
pub(super) struct Claims {
    slots: Box<[Slot]>,
    /// Namespaces and names, concatenated: each in a string of its own would cost an allocation.
    text: Box<str>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Offsets of namespace and name and of the end; a file of 1 GiB fits.
    bounds: [u32; 3],
    kind: Kind,
    object: Digest,
}

/// There are several per service.
const _: () = assert!(size_of::<Slot>() == 24);

impl Claims {
    /// Packs digests by key.
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

    /// Whether there are no objects.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The digest of the object with this key.
    pub(super) fn find(&self, key: &Key) -> Option<Digest> {
        let wanted = (key.kind, &*key.namespace, &*key.name);
        let place = |slot: &Slot| self.name(slot).cmp(&wanted);
        let index = self.slots.binary_search_by(place).ok()?;
        Some(self.slots[index].object)
    }

    /// All keys and digests.
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
