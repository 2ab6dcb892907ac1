//! The folder of logs of one node: beginning a run, and finding the runs that there are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dormouse_files::{Durability, write_whole};
use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde::{Deserialize, Serialize};

use crate::lines::Selection;
use crate::name::{Kind, Run, parse};
use crate::reader::{Next, Reader};
use crate::record::TIME_LEN;

/// Interval at which the begin and the end of a run are checked.
const PAUSE: Duration = Duration::from_millis(2);
const META_MODE: u32 = 0o600;
/// Limit of the time for which the output of a run is kept for a writer.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a run's file of metadata contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Name of its app; empty for a pod of no app.
    #[serde(default)]
    pub app: String,
}

/// The folder of logs.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// How much of a run's output is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in the files.
    pub bytes: u64,
    /// Bytes in files that were removed because there were too many, as if they had been as large as the largest one that is kept.
    pub removed: u64,
    /// Time of the oldest record; `None` without one.
    pub since: Option<Timestamp>,
}

/// The ends to which the process of a run writes. They are open for reading too, so that the process is never without a reader.
#[derive(Debug)]
pub struct Output {
    /// For standard output.
    pub stdout: File,
    /// For standard error.
    pub stderr: File,
    /// The first file of the log, which the writer creates when it has opened the other ends.
    log: PathBuf,
}

impl Output {
    /// Keeps the output until the writer has opened it: that of a process that ends at once would be lost. To be called when the
    /// process has its own copies of the ends.
    pub async fn release(self) {
        let opened = async {
            while !self.log.exists() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        // Without a writer for so long, the run ends with its process.
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, opened).await;
    }
}

impl Folder {
    /// The folder at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates it, readable for its owner only: pods may print secrets.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700))
    }

    /// Begins a run of a pod, which the writer notices; `is_again`: the pod may have had runs before. The run ends when the output was closed by all processes.
    pub fn begin(&self, uid: &str, meta: &Meta, is_again: bool) -> io::Result<Output> {
        let mut run = Run {
            uid: uid.to_owned(),
            attempt: 0,
        };
        // The folder is listed only for a pod that is started again: it may have thousands of files.
        if is_again || self.file(&run, Kind::Meta).exists() {
            run.attempt = self.last(uid)?.map_or(0, |run| run.attempt + 1);
        }
        let output = Output {
            stdout: self.fifo(&run, Kind::Stdout)?,
            stderr: self.fifo(&run, Kind::Stderr)?,
            log: self.file(&run, Kind::Records(0)),
        };
        // Moved into its place when all is open: the writer takes a FIFO that no process has open for one of a run that has ended.
        let path = self.file(&run, Kind::Meta);
        let text = serde_json::to_vec(meta)?;
        write_whole(&path, &text, META_MODE, Durability::Process)?;
        Ok(output)
    }

    fn fifo(&self, run: &Run, kind: Kind) -> io::Result<File> {
        let path = self.file(run, kind);
        match mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
            // Left by a begin that failed.
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        OpenOptions::new().read(true).write(true).open(path)
    }

    /// The last run of a pod.
    pub fn last(&self, uid: &str) -> io::Result<Option<Run>> {
        Ok(self.runs_of(uid)?.pop())
    }

    /// The runs of a pod, in order.
    pub fn runs_of(&self, uid: &str) -> io::Result<Vec<Run>> {
        let mut runs = self.runs()?;
        runs.retain(|run| run.uid == uid);
        Ok(runs)
    }

    /// The runs of all pods, in order of their uids and attempts.
    pub fn runs(&self) -> io::Result<Vec<Run>> {
        let files = self.files()?;
        let metas = files.into_iter().filter(|(_, kind)| *kind == Kind::Meta);
        let mut runs: Vec<Run> = metas.map(|(run, _)| run).collect();
        runs.sort_unstable();
        Ok(runs)
    }

    /// The metadata of a run.
    pub fn meta(&self, run: &Run) -> io::Result<Meta> {
        let bytes = fs::read(self.file(run, Kind::Meta))?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }

    /// Whether all processes of a run have closed their output, and all of it is in the files.
    pub fn has_ended(&self, run: &Run) -> bool {
        let is_open = |kind| self.file(run, kind).exists();
        !is_open(Kind::Stdout) && !is_open(Kind::Stderr)
    }

    /// When a run ended; `None` while it may be written to.
    pub fn ended_at(&self, run: &Run) -> io::Result<Option<SystemTime>> {
        if !self.has_ended(run) {
            return Ok(None);
        }
        let meta = fs::metadata(self.file(run, Kind::Meta))?;
        meta.modified().map(Some)
    }

    /// How much of a run's output is kept. Its files may be removed meanwhile.
    pub fn extent(&self, run: &Run) -> io::Result<Extent> {
        let mut numbers: Vec<u64> = self
            .files()?
            .into_iter()
            .filter(|(one, _)| one == run)
            .filter_map(|(_, kind)| match kind {
                Kind::Records(number) => Some(number),
                _ => None,
            })
            .collect();
        numbers.sort_unstable();
        let Some(oldest) = numbers.first().copied() else {
            return Ok(Extent::default());
        };
        let size = |number: &u64| fs::metadata(self.file(run, Kind::Records(*number)));
        let sizes = numbers
            .iter()
            .filter_map(|number| Some(size(number).ok()?.len()));
        let (bytes, largest) = sizes.fold((0, 0), |(all, largest): (u64, u64), size| {
            (all + size, largest.max(size))
        });
        Ok(Extent {
            bytes,
            removed: oldest.saturating_mul(largest),
            since: self.first_time(run, oldest),
        })
    }

    /// The time of the first record of a file.
    fn first_time(&self, run: &Run, number: u64) -> Option<Timestamp> {
        let mut time = [0; TIME_LEN];
        let mut file = File::open(self.file(run, Kind::Records(number))).ok()?;
        file.read_exact(&mut time).ok()?;
        std::str::from_utf8(&time).ok()?.parse().ok()
    }

    /// Resolves when the last run of a pod has ended, so that its last lines can be read. Cancel safe.
    pub async fn ended(&self, uid: &str) {
        while let Ok(Some(run)) = self.last(uid)
            && !self.has_ended(&run)
        {
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) fn file(&self, run: &Run, kind: Kind) -> PathBuf {
        self.path.join(run.file(kind))
    }

    /// All files of runs.
    pub(crate) fn files(&self) -> io::Result<Vec<(Run, Kind)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            files.extend(entry?.file_name().to_str().and_then(parse));
        }
        Ok(files)
    }

    /// Opens a file of records to append to it.
    pub(crate) fn append(&self, run: &Run, number: u64) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.open(self.file(run, Kind::Records(number)))
    }
}

/// The last lines of a pod's output, both streams, as far as it is in the files: empty if it wrote nothing. `folder` is that of the
/// logs. A line that is not UTF-8 has replacement characters.
pub fn tail(folder: &Folder, uid: &str, lines_max: u64) -> io::Result<String> {
    let Some(run) = folder.last(uid)? else {
        return Ok(String::new());
    };
    let selection = Selection {
        tail_lines: Some(lines_max),
        ..Selection::default()
    };
    let mut reader = Reader::open(folder.clone(), run, &selection, false)?;
    let mut text = Vec::new();
    while let Next::Text(more) = reader.read()? {
        text.extend(more);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::record::{Stream, write};

    #[test]
    fn each_begin_of_a_pod_is_a_run_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("logs"));
        folder.create().unwrap();
        let meta = Meta {
            namespace: "shop".into(),
            name: "web-1".into(),
            app: "web".into(),
        };
        let first = folder.begin("u1", &meta, false).unwrap();
        let _second = folder.begin("u1", &meta, false).unwrap();
        let _other = folder.begin("u10", &meta, false).unwrap();
        let attempts: Vec<u32> = folder
            .runs_of("u1")
            .unwrap()
            .iter()
            .map(|run| run.attempt)
            .collect();
        assert_eq!(attempts, [0, 1]);
        assert_eq!(folder.runs().unwrap().len(), 3);
        let last = folder.last("u1").unwrap().unwrap();
        assert_eq!((folder.meta(&last).unwrap(), last.attempt), (meta, 1));
        assert!(!folder.has_ended(&last));
        // More than nothing, less than a pipe: no reader is needed.
        writeln!(&first.stdout, "kept").unwrap();
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn the_tail_of_a_pod_is_that_of_its_last_run() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        assert_eq!(tail(&folder, "u1", 2).unwrap(), "");
        let meta = Meta {
            namespace: "shop".into(),
            name: "web-1".into(),
            app: String::new(),
        };
        for text in ["old\n", "a\nb\nc\n"] {
            let _output = folder.begin("u1", &meta, false).unwrap();
            let run = folder.last("u1").unwrap().unwrap();
            let mut bytes = Vec::new();
            write(
                text.as_bytes(),
                Stream::Stderr,
                Timestamp::UNIX_EPOCH,
                &mut bytes,
            );
            folder.append(&run, 0).unwrap().write_all(&bytes).unwrap();
        }
        assert_eq!(tail(&folder, "u1", 2).unwrap(), "b\nc\n");
    }

    #[test]
    fn the_extent_of_a_run_has_what_is_kept_and_about_what_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let run = Run {
            uid: "u1".into(),
            attempt: 0,
        };
        assert_eq!(folder.extent(&run).unwrap(), Extent::default());
        for (number, text) in [(3, "abcdefghij\n"), (4, "a\n")] {
            let at = Timestamp::from_second(number).unwrap();
            let mut bytes = Vec::new();
            write(text.as_bytes(), Stream::Stdout, at, &mut bytes);
            let number = u64::try_from(number).unwrap();
            folder
                .append(&run, number)
                .unwrap()
                .write_all(&bytes)
                .unwrap();
        }
        let line = u64::try_from(TIME_LEN + " stdout F ".len()).unwrap();
        let want = Extent {
            bytes: 2 * line + 13,
            removed: 3 * (line + 11),
            since: Some(Timestamp::from_second(3).unwrap()),
        };
        assert_eq!(folder.extent(&run).unwrap(), want);
    }
}
