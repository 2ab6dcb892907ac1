//! What a folder's files say together, and what changes when some of them say something else. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Batch;
use super::object::{Change, Key, Object};
use super::problem::Problem;
use super::text::Parsed;

/// A file's name within the folder.
pub(super) type FileName = Arc<OsStr>;

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

/// All files and what is in force of them.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// For people only: nothing is read here.
    path: PathBuf,
    /// Every description of every object: the first one of an object is in force.
    claims: BTreeMap<(Key, FileName), Arc<Object>>,
    /// What each file describes.
    files: HashMap<FileName, BTreeSet<Key>>,
    /// What was told.
    told: HashMap<Key, Arc<Object>>,
}

/// What an update touched.
#[derive(Default)]
struct Touched {
    keys: BTreeSet<Key>,
    /// Descriptions that were not there before: they may be in conflict with others.
    claims: Vec<(Key, FileName)>,
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
    pub(super) fn update(&mut self, contents: Vec<(FileName, Content)>) -> Batch {
        let mut touched = Touched::default();
        let mut problems = Vec::new();
        for (file, content) in contents {
            match content {
                Content::Read(parsed) => {
                    self.replace(&file, parsed.objects, parsed.is_whole, &mut touched);
                    problems.extend(parsed.problems);
                }
                Content::Unreadable(problem) => problems.push(problem),
                Content::Gone => self.replace(&file, BTreeMap::new(), true, &mut touched),
            }
        }
        problems.extend(self.conflicts(touched.claims));
        let keys = touched.keys.into_iter();
        let changes = keys.filter_map(|key| self.tell(key)).collect();
        Batch { changes, problems }
    }

    /// Puts a file's objects in the place of those that it had.
    fn replace(
        &mut self,
        file: &FileName,
        objects: BTreeMap<Key, Arc<Object>>,
        is_whole: bool,
        touched: &mut Touched,
    ) {
        let mut had = self.files.remove(file).unwrap_or_default();
        if is_whole {
            for key in had.extract_if(.., |key| !objects.contains_key(key)) {
                self.claims.remove(&(key.clone(), Arc::clone(file)));
                touched.keys.insert(key);
            }
        }
        for (key, object) in objects {
            let claim = (key.clone(), Arc::clone(file));
            if self.claims.get(&claim) == Some(&object) {
                continue;
            }
            if self.claims.insert(claim.clone(), object).is_none() {
                touched.claims.push(claim);
            }
            touched.keys.insert(key.clone());
            had.insert(key);
        }
        if !had.is_empty() {
            self.files.insert(Arc::clone(file), had);
        }
    }

    /// Who describes an object, the one in force first.
    fn claimants(&self, key: &Key) -> impl Iterator<Item = (&FileName, &Arc<Object>)> {
        let from = (key.clone(), FileName::from(OsStr::new("")));
        let claims = self.claims.range(from..);
        let claims = claims.take_while(move |((claimed, _), _)| claimed == key);
        claims.map(|((_, file), object)| (file, object))
    }

    /// The conflicts that these new claims are in.
    fn conflicts(&self, claims: Vec<(Key, FileName)>) -> Vec<Problem> {
        let mut losers = BTreeSet::new();
        for (key, file) in claims {
            let mut files = self.claimants(&key).map(|(file, _)| file);
            let (Some(first), Some(second)) = (files.next(), files.next()) else {
                continue;
            };
            let loser = if file == *first { second } else { &file };
            losers.insert((key.clone(), Arc::clone(first), Arc::clone(loser)));
        }
        let name = |file: &FileName| self.path.join(&**file).display().to_string();
        let problems = losers.iter().map(|(key, first, loser)| Problem::Duplicate {
            object: key.to_string(),
            winner: name(first),
            loser: name(loser),
        });
        problems.collect()
    }

    /// What there is to tell of an object.
    fn tell(&mut self, key: Key) -> Option<Change> {
        let now = self.claimants(&key).next().map(|(_, object)| object);
        let Some(now) = now.map(Arc::clone) else {
            let last = self.told.remove(&key)?;
            return Some(Change::Deleted(Arc::unwrap_or_clone(last)));
        };
        // Another description may say the same.
        let before = self.told.insert(key, Arc::clone(&now));
        (before.as_ref() != Some(&now)).then(|| Change::Applied((*now).clone()))
    }
}

#[cfg(test)]
mod tests;
