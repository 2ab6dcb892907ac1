//! The files of all runs and their sizes, as the writer knows them: it alone changes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::time::SystemTime;

use tracing::warn;

use crate::folder::Folder;
use crate::name::{Kind, Run};
use crate::retention::{Files, Limits, Removal, counted, excess, removals};

/// All runs.
pub(super) struct Shelf {
    folder: Folder,
    limits: Limits,
    runs: BTreeMap<Run, Files>,
    /// Runs that are written to.
    open: usize,
    /// Bytes of all files, as far as the bounds count them.
    bytes: u64,
}

impl Shelf {
    /// Lists the folder. A run that may still be written to counts as ended until [`Shelf::begin`].
    pub(super) fn open(folder: Folder, limits: Limits) -> io::Result<Self> {
        let mut runs: BTreeMap<Run, Files> = BTreeMap::new();
        for (run, kind) in folder.files()? {
            let Ok(found) = fs::metadata(folder.file(&run, kind)) else {
                continue;
            };
            let files = runs.entry(run).or_default();
            match kind {
                Kind::Meta => files.ended = Some(found.modified()?),
                Kind::Records(number) => {
                    files.records.insert(number, found.len());
                }
                Kind::Stdout | Kind::Stderr => {}
            }
        }
        // Without metadata it is a run that is about to begin.
        runs.retain(|_, files| files.ended.is_some());
        let bytes = runs.values().map(Files::bytes).sum();
        Ok(Self {
            folder,
            limits,
            runs,
            open: 0,
            bytes,
        })
    }

    /// A run is written to; returns whether it was not before.
    pub(super) fn begin(&mut self, run: &Run) -> bool {
        let is_known = self.runs.contains_key(run);
        let files = self.runs.entry(run.clone()).or_default();
        if is_known && files.ended.is_none() {
            return false;
        }
        files.ended = None;
        if files.records.is_empty() {
            files.records.insert(0, 0);
            self.bytes += files.bytes();
        }
        self.open += 1;
        true
    }

    /// A run has ended: its time of retention begins.
    pub(super) fn end(&mut self, run: &Run, now: SystemTime) {
        if let Some(files) = self.runs.get_mut(run) {
            files.ended = Some(now);
            self.open = self.open.saturating_sub(1);
        }
        let meta = File::options()
            .append(true)
            .open(self.folder.file(run, Kind::Meta));
        if let Err(error) = meta.and_then(|meta| meta.set_modified(now)) {
            warn!(%run, %error, "the end of a pod's output is not recorded: its log may be removed early");
        }
    }

    /// Whether the newest file of a run has room for this many bytes. An empty file has room for any number.
    pub(super) fn has_room(&self, run: &Run, bytes: u64) -> bool {
        let newest = self
            .runs
            .get(run)
            .and_then(|files| files.records.values().next_back());
        newest.is_none_or(|size| *size == 0 || size + bytes <= self.limits.file_bytes(self.open))
    }

    /// Begins the next file of a run, and removes what exceeds the bounds.
    pub(super) fn next_file(&mut self, run: &Run, now: SystemTime) {
        let files = self.runs.entry(run.clone()).or_default();
        let number = files
            .records
            .keys()
            .next_back()
            .map_or(0, |number| number + 1);
        files.records.insert(number, 0);
        self.bytes += counted(0);
        // The other runs are looked at only if there is too much of all: a pod that writes much costs them nothing.
        for number in excess(files, &self.limits, self.open) {
            let removed = self.remove_records(run, number);
            note(run, removed);
        }
        if self.bytes > self.limits.node_bytes {
            self.tidy(now);
        }
    }

    /// Opens the newest file of a run.
    pub(super) fn append(&self, run: &Run) -> io::Result<File> {
        let numbers = self.runs.get(run).map(|files| files.records.keys());
        let newest = numbers.and_then(|mut numbers| numbers.next_back().copied());
        self.folder.append(run, newest.unwrap_or(0))
    }

    /// The newest file of a run has grown.
    pub(super) fn written(&mut self, run: &Run, bytes: u64) {
        let records = self.runs.get_mut(run).map(|files| &mut files.records);
        if let Some(mut newest) = records.and_then(BTreeMap::last_entry) {
            *newest.get_mut() += bytes;
            self.bytes += bytes;
        }
    }

    /// Removes what exceeds the bounds.
    pub(super) fn tidy(&mut self, now: SystemTime) {
        for removal in removals(&self.runs, &self.limits, now) {
            let (run, removed) = match &removal {
                Removal::Records(run, number) => (run, self.remove_records(run, *number)),
                Removal::Run(run) => (run, self.remove_run(run)),
            };
            note(run, removed);
        }
        self.bytes = self.runs.values().map(Files::bytes).sum();
    }

    fn remove_records(&mut self, run: &Run, number: u64) -> io::Result<()> {
        self.remove(run, Kind::Records(number))?;
        let records = self.runs.get_mut(run).map(|files| &mut files.records);
        if let Some(bytes) = records.and_then(|records| records.remove(&number)) {
            self.bytes = self.bytes.saturating_sub(counted(bytes));
        }
        Ok(())
    }

    /// The metadata last: what is left of an incomplete removal is removed by the next writer.
    fn remove_run(&mut self, run: &Run) -> io::Result<()> {
        let numbers: Vec<u64> = self
            .runs
            .get(run)
            .into_iter()
            .flat_map(|files| files.records.keys().copied())
            .collect();
        for number in numbers {
            self.remove_records(run, number)?;
        }
        for kind in [Kind::Stdout, Kind::Stderr, Kind::Meta] {
            self.remove(run, kind)?;
        }
        self.runs.remove(run);
        Ok(())
    }

    fn remove(&self, run: &Run, kind: Kind) -> io::Result<()> {
        match fs::remove_file(self.folder.file(run, kind)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reports a removal that failed; it is tried again with the next ones.
fn note(run: &Run, removed: io::Result<()>) {
    if let Err(error) = removed {
        warn!(%run, %error, "failed to remove an old log");
    }
}
