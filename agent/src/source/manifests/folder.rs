//! What a folder's files say together, and what changes when some of them say something else. Pure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Batch;
use super::object::{Change, Key, Object};
use super::problem::Problem;
use super::text::Parsed;

mod claims;

use claims::{Claims, Digest, Digester};

/// A file's name within the folder. Thin: every object that is in force has one.
pub(super) type FileName = Arc<OsString>;

/// What became of a file.
#[derive(Debug)]
pub(super) enum Content {
    /// It was read.
    Read(Parsed),
    /// It cannot be read: whatever it said stays.
    Unreadable(Problem),
    /// It is not there any more.
    Gone,
}

/// What an update leads to.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) changes: BTreeMap<Key, Change>,
    pub(super) problems: Vec<Problem>,
    /// Files to read again: they describe what is in force from now on, and it was not kept.
    pub(super) again: BTreeSet<FileName>,
}

impl Update {
    /// Adds what came of reading again.
    pub(super) fn then(&mut self, next: Self) {
        self.changes.extend(next.changes);
        self.problems.extend(next.problems);
        self.again = next.again;
    }

    /// What is to be told.
    pub(super) fn batch(self) -> Batch {
        Batch {
            changes: self.changes.into_values().collect(),
            problems: self.problems,
            more: false,
        }
    }
}

/// All files and what is in force of them. Objects are not kept: a cluster's are gigabytes.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// For people only: nothing is read here.
    path: PathBuf,
    digester: Digester,
    files: HashMap<FileName, Claims>,
    /// For every object, by its key's digest, the first of the files that describe it: its description is in force.
    winners: HashMap<Digest, FileName>,
    /// The descriptions that are not in force; there are few.
    losers: BTreeSet<(Digest, FileName)>,
    /// What was told of objects of which the description in force could not be told yet.
    stale: HashMap<Digest, Option<Digest>>,
}

/// What an update touched.
#[derive(Default)]
struct Touched {
    /// With what was told of it before.
    keys: BTreeMap<Key, Option<Digest>>,
    /// Descriptions that were not there before: they may be in conflict with others.
    claims: Vec<(Key, FileName)>,
    /// The objects of the files that were read.
    at_hand: HashMap<FileName, BTreeMap<Key, Object>>,
}

impl Folder {
    /// A folder of which nothing is known yet.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Takes what became of some files; costs what they held and hold.
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
            self.tell(key, before, &mut touched.at_hand, &mut update);
        }
        update
    }

    /// Puts a file's objects in the place of those that it had.
    fn replace(
        &mut self,
        file: &FileName,
        objects: &BTreeMap<Key, Object>,
        is_whole: bool,
        touched: &mut Touched,
    ) {
        // Every look names its files anew.
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

    /// Notes what was told of an object, before anything of it changes.
    fn touch(&self, key: &Key, touched: &mut Touched) {
        if !touched.keys.contains_key(key) {
            touched.keys.insert(key.clone(), self.told(key));
        }
    }

    fn told(&self, key: &Key) -> Option<Digest> {
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

    /// The conflicts that these new claims are in.
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

    /// Tells what there is to tell of an object, or what has to be read to do so.
    fn tell(
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
        // Another description may say the same.
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
