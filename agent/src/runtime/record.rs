//! The record of a standalone pod, which outlives the agent: one small file per pod, replaced as a whole.
//!
//! The files are not synced to disk: processes and namespaces do not survive a crash of the machine either.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};
use dormouse_fleet::proto::pod_status::Phase;
use dormouse_fleet::proto::{PodSpec, PodStatus, Stages};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::ending::Ending;

/// Maximum length of a uid, in bytes: Kubernetes' have 36; uids become parts of file names.
const UID_LEN_MAX: usize = 64;
const FILE_MODE: u32 = 0o600;

/// Why records cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The folder cannot be created.
    #[error("failed to create {path}")]
    Create {
        /// Path of the folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// Path of the folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A record cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// Path of the record.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The recorded state of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    /// Some of its parts exist; they are cleared before the next start.
    Starting,
    /// Its process runs.
    Running(Process),
    /// Its process ended, or could not be started; the pod stays until it is removed.
    Ended(Ending),
    /// It is being removed; the process may still run.
    Stopping(Option<Process>),
}

impl State {
    /// As in the record.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running(_) => "running",
            Self::Ended { .. } => "ended",
            Self::Stopping(_) => "stopping",
        }
    }
}

/// A process, identified by pid and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    pub(super) start_time: u64,
}

/// Times of the start, as in the fleet's `Stages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "units are part of names")]
pub(super) struct Times {
    pub(super) received_ns: u64,
    pub(super) cni_begin_ns: u64,
    pub(super) cni_end_ns: u64,
    pub(super) started_ns: u64,
    pub(super) ready_ns: u64,
}

impl From<Times> for Stages {
    fn from(times: Times) -> Self {
        Self {
            received_ns: times.received_ns,
            cni_begin_ns: times.cni_begin_ns,
            cni_end_ns: times.cni_end_ns,
            started_ns: times.started_ns,
            ready_ns: times.ready_ns,
        }
    }
}

/// The record of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The Pod object as JSON, as control sent it.
    pub(super) pod: String,
    /// The pod's cohort, if control set one.
    #[serde(default)]
    pub(super) cohort: Option<u32>,
    pub(super) state: State,
    pub(super) address: Option<Ipv6Addr>,
    pub(super) times: Times,
}

impl Record {
    /// The record of a pod that is to be started.
    pub(super) fn new(spec: PodSpec) -> Self {
        Self {
            uid: spec.uid,
            namespace: spec.namespace,
            name: spec.name,
            pod: String::from_utf8_lossy(&spec.pod).into_owned(),
            cohort: Some(spec.cohort).filter(|cohort| *cohort != 0),
            state: State::Starting,
            address: None,
            times: Times {
                received_ns: dormouse_fleet::Boottime::now().0,
                ..Times::default()
            },
        }
    }

    /// The status that is reported to control.
    pub(super) fn status(&self, phase: Phase, ready: bool) -> PodStatus {
        let mut status = PodStatus {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            phase: phase.into(),
            address: self
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            ready,
            stages: Some(self.times.into()),
            ..PodStatus::default()
        };
        if let State::Ended(ending) = &self.state {
            status.reason.clone_from(&ending.reason);
            status.message.clone_from(&ending.message);
            status.exit_code = ending.exit_code;
        }
        status
    }

    /// Replaces the pod's file.
    pub(super) fn write(&self, path: &Path) -> Result<(), RecordError> {
        let fail = |source| RecordError::Write {
            path: path.to_owned(),
            source,
        };
        let bytes = serde_json::to_vec(self).map_err(|error| fail(error.into()))?;
        write_whole(path, &bytes, FILE_MODE, Durability::Process).map_err(fail)
    }
}

/// Whether a uid can be part of a file name.
pub(super) fn is_uid(uid: &str) -> bool {
    let fits = (1..=UID_LEN_MAX).contains(&uid.len());
    fits && uid
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Creates the folder, for root only: a pod's environment can contain secrets, and its record repeats it.
pub(super) fn make_dir(path: &Path) -> Result<(), RecordError> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|source| RecordError::Create {
            path: path.to_owned(),
            source,
        })
}

/// All records of the folder. An unreadable one is renamed: control's list of pods restores its pod.
pub(super) fn read_all(dir: &Path) -> Result<Vec<Record>, RecordError> {
    let fail = |source| RecordError::Read {
        path: dir.to_owned(),
        source,
    };
    let mut records = Vec::new();
    for file in fs::read_dir(dir).map_err(fail)? {
        let path = file.map_err(fail)?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let bytes = fs::read(&path).map_err(fail)?;
        match serde_json::from_slice(&bytes) {
            Ok(record) => records.push(record),
            Err(error) => {
                warn!(path = %path.display(), %error, "a pod's record is unreadable; renamed");
                let _ = fs::rename(&path, path.with_extension("unreadable"));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: State) -> Record {
        let spec = PodSpec {
            uid: "a-1".into(),
            name: "web".into(),
            namespace: "shop".into(),
            pod: b"{}".to_vec(),
            stop: false,
            cohort: 5_007,
        };
        Record {
            state,
            ..Record::new(spec)
        }
    }

    #[test]
    fn a_record_of_each_state_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process {
            pid: 4,
            start_time: 9,
        };
        let ended = State::Ended(Ending::failure("Error", "why".into()));
        let states = [
            State::Starting,
            State::Running(process),
            ended,
            State::Stopping(Some(process)),
            State::Stopping(None),
        ];
        for state in states {
            let written = record(state);
            written.write(&dir.path().join("a-1.json")).unwrap();
            assert_eq!(read_all(dir.path()).unwrap(), [written]);
        }
    }

    #[test]
    fn records_and_logs_are_for_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let pods = dir.path().join("state").join("pods");
        make_dir(&pods).unwrap();
        make_dir(&pods).unwrap();
        let mode = fs::metadata(&pods).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_torn_record_is_renamed_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b.json"), b"{\"uid\":").unwrap();
        fs::write(dir.path().join("c.log"), b"lines").unwrap();
        record(State::Starting)
            .write(&dir.path().join("a-1.json"))
            .unwrap();
        assert_eq!(read_all(dir.path()).unwrap().len(), 1);
        assert!(dir.path().join("b.unreadable").exists());
    }

    #[test]
    fn a_uid_that_could_leave_its_folder_is_refused() {
        for bad in ["", "../x", "a/b", "a.b", &"a".repeat(65)] {
            assert!(!is_uid(bad), "{bad}");
        }
        assert!(is_uid("0c5e7d2a-9c2b-4f6e-8d5e-1f2a3b4c5d6e"));
    }
}
