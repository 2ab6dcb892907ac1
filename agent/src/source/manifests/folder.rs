//! The merged content of a folder's files, and the changes when some files change. Pure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Batch;
use super::problem::Problem;
use super::text::Parsed;
use crate::source::object::{Change, Key, Object};

mod claims;

use claims::{Claims, Digest, Digester};

/// A file's name within the folder; shared, because every object refers to one.
pub(super) type FileName = Arc<OsString>;

/// The new state of a file.
#[derive(Debug)]
pub(super) enum Content {
    /// Its content.
    Read(Parsed),
    /// It cannot be read: its objects stay.
    Unreadable(Problem),
    /// It was deleted.
    Gone,
}

/// The result of an update.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) changes: BTreeMap<Key, Change>,
    pub(super) problems: Vec<Problem>,
    /// Files to read again: they describe objects that are valid from now on, and that were not stored.
    pub(super) again: BTreeSet<FileName>,
}

impl Update {
    /// Adds the result of reading files again.
    pub(super) fn then(&mut self, next: Self) {
        self.changes.extend(next.changes);
        self.problems.extend(next.problems);
        self.again = next.again;
    }

    /// The batch to pass on.
    pub(super) fn batch(self) -> Batch {
        Batch {
            changes: self.changes.into_values().collect(),
            problems: self.problems,
            more: false,
        }
    }
}

/// All files, with digests of their objects. The objects are not stored: a cluster's are gigabytes.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// For messages only.
    path: PathBuf,
    digester: Digester,
    files: HashMap<FileName, Claims>,
    /// For every object, by its key's digest, the first file that describes it: this description is valid.
    winners: HashMap<Digest, FileName>,
    /// The other descriptions; there are few.
    losers: BTreeSet<(Digest, FileName)>,
    /// The last reported digests of objects whose valid description is not available yet.
    stale: HashMap<Digest, Option<Digest>>,
}

/// The objects that an update affects.
#[derive(Default)]
struct Touched {
    /// With the digest that was reported before.
    keys: BTreeMap<Key, Option<Digest>>,
    /// New descriptions: they may conflict with others.
    claims: Vec<(Key, FileName)>,
    /// The objects of the files that were read.
    at_hand: HashMap<FileName, BTreeMap<Key, Object>>,
}

impl Folder {
    /// A folder without known files.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Applies the new states of some files; the cost is proportional to their old and new objects.
    pub(super) fn update(&mut self, contents: Vec<(FileName, Content)>) -> Update {
        let mut touched = Touched::default();
        let mut update = Update::default();
        for (file, content) in contents {
            match content {
                Content::Read(parsed) => {
                    self.replace(&file, &parsed.objects, parsed.is_whole, &mut touched);
                    touched.at_hand.insert(file, parsed.objects);
                    update.problems.extend(parsed.problems);
                }
                Content::Unreadable(problem) => update.problems.push(problem),
                Content::Gone => self.replace(&file, &BTreeMap::new(), true, &mut touched),
            }
        }
        update.problems.extend(self.conflicts(touched.claims));
        for (key, before) in touched.keys {
            self.report(key, before, &mut touched.at_hand, &mut update);
        }
        update
    }

    /// Replaces a file's objects.
    fn replace(
        &mut self,
        file: &FileName,
        objects: &BTreeMap<Key, Object>,
        is_whole: bool,
        touched: &mut Touched,
    ) {
        // Each look creates its file names: the stored one is reused.
        let (file, had) = match self.files.get_key_value(file) {
            Some((file, had)) => (Arc::clone(file), had),
            None => (Arc::clone(file), &Claims::default()),
        };
        let mut now = self.digester.objects(objects);
        let mut lost = Vec::new();
        for (key, digest) in had.iter().filter(|(key, _)| !objects.contains_key(key)) {
            if is_whole {
                self.touch(&key, touched);
                lost.push(key);
            } else {
                now.insert(key, digest);
            }
        }
        let mut new = Vec::new();
        for (key, digest) in &now {
            let before = had.find(key);
            if before != Some(*digest) || self.stale.contains_key(&self.digester.key(key)) {
                self.touch(key, touched);
            }
            if before.is_none() {
                new.push(key.clone());
            }
        }
        self.keep(&file, Claims::of(&now));
        for key in lost {
            self.release(self.digester.key(&key), &file);
        }
        for key in new {
            self.claim(self.digester.key(&key), &file);
            touched.claims.push((key, Arc::clone(&file)));
        }
    }

    /// Remembers an object's reported digest before a change.
    fn touch(&self, key: &Key, touched: &mut Touched) {
        if !touched.keys.contains_key(key) {
            touched.keys.insert(key.clone(), self.reported(key));
        }
    }

    fn reported(&self, key: &Key) -> Option<Digest> {
        let stale = self.stale.get(&self.digester.key(key)).copied();
        stale.unwrap_or_else(|| self.in_force(key).map(|(_, digest)| digest))
    }

    fn in_force(&self, key: &Key) -> Option<(&FileName, Digest)> {
        let file = self.winners.get(&self.digester.key(key))?;
        let digest = self.files.get(file)?.find(key)?;
        Some((file, digest))
    }

    fn keep(&mut self, file: &FileName, claims: Claims) {
        if claims.is_empty() {
            self.files.remove(file);
        } else {
            self.files.insert(Arc::clone(file), claims);
        }
    }

    fn claim(&mut self, key: Digest, file: &FileName) {
        let mut loser = Arc::clone(file);
        match self.winners.entry(key) {
            Entry::Vacant(free) => {
                free.insert(loser);
            }
            Entry::Occupied(mut winner) => {
                if file < winner.get() {
                    loser = winner.insert(loser);
                }
                self.losers.insert((key, loser));
            }
        }
    }

    fn release(&mut self, key: Digest, file: &FileName) {
        if self.losers.remove(&(key, Arc::clone(file))) {
            return;
        }
        let next = self.first_loser(key).cloned();
        match next {
            Some(next) => {
                self.losers.remove(&(key, Arc::clone(&next)));
                self.winners.insert(key, next);
            }
            None => {
                self.winners.remove(&key);
            }
        }
    }

    fn first_loser(&self, key: Digest) -> Option<&FileName> {
        let mut losers = self.losers.range((key, FileName::default())..);
        let (of, file) = losers.next()?;
        (*of == key).then_some(file)
    }

    /// The conflicts of these new descriptions.
    fn conflicts(&self, claims: Vec<(Key, FileName)>) -> Vec<Problem> {
        let mut losers = BTreeSet::new();
        for (key, file) in claims {
            let id = self.digester.key(&key);
            let (Some(first), Some(second)) = (self.winners.get(&id), self.first_loser(id)) else {
                continue;
            };
            let loser = if file == *first { second } else { &file };
            losers.insert((key, Arc::clone(first), Arc::clone(loser)));
        }
        let name = |file: &FileName| self.path.join(&**file).display().to_string();
        let problems = losers.iter().map(|(key, first, loser)| Problem::Duplicate {
            object: key.to_string(),
            winner: name(first),
            loser: name(loser),
        });
        problems.collect()
    }

    /// Reports an object's change, or requests the file that has to be read for it.
    fn report(
        &mut self,
        key: Key,
        before: Option<Digest>,
        at_hand: &mut HashMap<FileName, BTreeMap<Key, Object>>,
        update: &mut Update,
    ) {
        let id = self.digester.key(&key);
        self.stale.remove(&id);
        let Some((file, now)) = self.in_force(&key) else {
            if before.is_some() {
                let deleted = Change::Deleted(key.object());
                update.changes.insert(key, deleted);
            }
            return;
        };
        // Another file may describe the same.
        if before == Some(now) {
            return;
        }
        let objects = at_hand.get_mut(file);
        if objects.is_none() {
            update.again.insert(Arc::clone(file));
        }
        match objects.and_then(|objects| objects.remove(&key)) {
            Some(object) => {
                update.changes.insert(key, Change::Applied(object));
            }
            None => {
                self.stale.insert(id, before);
            }
        }
    }
}

#[cfg(test)]
mod tests;
