//! The names of the files in the folder of logs: `UID.ATTEMPT.KIND`. Pure.

use std::fmt;

/// One run of a pod: a pod that is started again with the same uid has a further one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The pod's uid: letters, digits and dashes.
    pub uid: String,
    /// Counts the runs of this uid, from 0.
    pub attempt: u32,
}

/// The file with this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The run's description.
    Meta,
    /// The FIFO of its standard output; exists while it may be written to.
    Stdout,
    /// The FIFO of its standard error, likewise.
    Stderr,
    /// Records; the file with the highest number is written to.
    Records(u64),
}

impl Run {
    /// The file name of one of the run's files.
    pub(crate) fn file(&self, kind: Kind) -> String {
        match kind {
            Kind::Meta => format!("{self}.json"),
            Kind::Stdout => format!("{self}.out"),
            Kind::Stderr => format!("{self}.err"),
            Kind::Records(number) => format!("{self}.{number}.log"),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.uid, self.attempt)
    }
}

/// The run and the kind of a file; `None` for a file that is none of a run's.
pub(crate) fn parse(file: &str) -> Option<(Run, Kind)> {
    let mut parts = file.split('.');
    let (uid, attempt) = (parts.next()?, parts.next()?.parse().ok()?);
    let kind = match (parts.next()?, parts.next(), parts.next()) {
        ("json", None, None) => Kind::Meta,
        ("out", None, None) => Kind::Stdout,
        ("err", None, None) => Kind::Stderr,
        (number, Some("log"), None) => Kind::Records(number.parse().ok()?),
        _ => return None,
    };
    let uid = Some(uid).filter(|uid| !uid.is_empty())?.to_owned();
    Some((Run { uid, attempt }, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_run_is_recognised_by_its_name() {
        let run = Run {
            uid: "0c5e-7".into(),
            attempt: 3,
        };
        for kind in [Kind::Meta, Kind::Stdout, Kind::Stderr, Kind::Records(17)] {
            assert_eq!(parse(&run.file(kind)), Some((run.clone(), kind)));
        }
    }

    #[test]
    fn other_files_are_none_of_a_run() {
        for other in [
            "writer",
            "a.json",
            "a.0.txt",
            "a.x.json",
            ".0.json",
            "a.0.1.2.log",
            "a.0.json.new",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
