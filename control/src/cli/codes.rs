//! Error codes of commands, each with its runbook.

use dormouse_command::runbooks;

/// The code of an error, printed as `error[DM1203]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A file cannot be read, or is not a manifest.
    Manifest,
    /// The server refused an object.
    Refused,
    /// A manifest describes an object twice, or gives two apps one VIP.
    Duplicate,
    /// The resource does not exist.
    Kind,
    /// The address of the API server is missing or wrong.
    Endpoint,
    /// The server cannot be reached.
    Unreachable,
    /// The server denied permission.
    NotAllowed,
    /// The object does not exist.
    NotFound,
    /// Another client changed the object.
    Conflict,
    /// The server failed.
    Server,
    /// The app was not woken yet.
    NoWake,
    /// There is no log of the pod.
    NoLog,
    /// The app does not have the revision.
    NoRevision,
    /// The rollout made no progress within its deadline.
    Rollout,
    /// The output cannot be written, or the reply cannot be parsed.
    Output,
}

/// All codes in numeric order, each with its number and its runbook.
pub const ALL: &[(Code, &str, &str)] = &[
    (Code::Manifest, "DM1101", MANIFEST),
    (Code::Refused, "DM1102", REFUSED),
    (Code::Duplicate, "DM1103", DUPLICATE),
    (Code::Kind, "DM1104", KIND),
    (Code::Endpoint, "DM1201", ENDPOINT),
    (Code::Unreachable, "DM1203", UNREACHABLE),
    (Code::NotAllowed, "DM1204", NOT_ALLOWED),
    (Code::NotFound, "DM1301", NOT_FOUND),
    (Code::Conflict, "DM1302", CONFLICT),
    (Code::Server, "DM1303", SERVER),
    (Code::NoWake, "DM1304", NO_WAKE),
    (Code::NoLog, "DM1305", NO_LOG),
    (Code::NoRevision, "DM1306", NO_REVISION),
    (Code::Rollout, "DM1307", ROLLOUT),
    (Code::Output, runbooks::OUTPUT, runbooks::OUTPUT_TEXT),
];

const MANIFEST: &str = "\
meaning  a file could not be read, or does not hold a YAML or JSON manifest
impact   nothing was changed: all files are read before anything is sent
find out the message names the file and, for YAML, the line
mend     give each document apiVersion, kind, metadata.name and spec; separate documents by a line ---
";
const REFUSED: &str = "\
meaning  the server refused an object: a field is unknown, missing or not allowed
impact   nothing was changed: every document is checked by the server before the first is stored
find out each line below the error names one field by its path, and what is allowed there
mend     change the field as the line says and apply again
";
const DUPLICATE: &str = "\
meaning  one manifest describes an object twice, or gives two apps the same VIP
impact   nothing was changed
find out the message names the object and both documents by their numbers
mend     remove or rename one of them; without spec.vip an app gets a free VIP
";
const KIND: &str = "\
meaning  there is no such resource on this server, or the command has no such use of it
impact   nothing was changed
find out the resources are app and revision (dormouse.dev/v1alpha1), pod, node and event (v1)
mend     correct the resource, or apiVersion and kind in the manifest
";
const ENDPOINT: &str = "\
meaning  the API server is unknown: its address or the kubeconfig cannot be parsed
impact   no request was sent
find out the address comes from --endpoint, DORMOUSE_ENDPOINT, the kubeconfig, or is https://[::1]:6443
mend     export KUBECONFIG=FILE, such as pki/admin.kubeconfig of the data directory of `dormouse up`
";
const UNREACHABLE: &str = "\
meaning  the server did not take the connection, or did not reply in time
impact   commands fail; apps keep running, because the data path does not need the API
find out is `dormouse up` running, and does the address respond: curl -gk ADDRESS/readyz
mend     start control, or correct the address
";
const NOT_ALLOWED: &str = "\
meaning  the server knows the user and denies this request
impact   nothing was changed
find out kubectl auth can-i VERB apps.dormouse.dev
mend     ask the cluster's owner for the role, or use another context
";
const NOT_FOUND: &str = "\
meaning  there is no object of this name in this namespace
impact   none
find out dormouse get apps -A lists all apps with their namespaces
mend     correct the name, or give the namespace with -n
";
const CONFLICT: &str = "\
meaning  another client changed the object at the same time, or it exists already
impact   the other change is stored, this one is not
find out dormouse get RESOURCE NAME -o yaml shows the stored object
mend     try again
";
const SERVER: &str = "\
meaning  the server failed, often because its store is unreachable
impact   commands that write fail; apps keep running
find out the message has the server's reason; the server's log has more
mend     restart control if its store is down; else report a bug with the message
";
const NO_WAKE: &str = "\
meaning  no wake of this app is recorded: it has not slept since control started
impact   none
find out dormouse get app NAME shows its last wake
mend     send it a request while it sleeps
";
const NO_LOG: &str = "\
meaning  no node has a log of this pod, or of any pod of this app
impact   none
find out dormouse get pods shows whether a pod runs; dormouse explain app NAME, why not
mend     wake the app with a request; logs of pods that ended are kept for 24 hours (--log-hours of dormouse-agent)
";
const NO_REVISION: &str = "\
meaning  the app has no revision of this number, or none before its first
impact   nothing was changed
find out dormouse rollout history app NAME lists the revisions; spec.revisionHistoryLimit of them are kept
mend     use a number of the list, or apply the manifest that you want
";
const ROLLOUT: &str = "\
meaning  no further pod of the app's newest revision was ready within spec.progressDeadlineSeconds, or the command's time was over
impact   ready pods of the earlier revision go on serving; pods of the newest one are still started
find out the message has the last failure; dormouse explain app NAME, dormouse events --for app/NAME
mend     dormouse rollout undo app NAME, or apply a repaired manifest
";
impl Code {
    /// The number, such as `DM1203`.
    pub fn id(self) -> &'static str {
        self.entry().map_or("DM0000", |(_, id, _)| id)
    }

    /// Meaning, impact, diagnosis and remedy.
    pub fn runbook(self) -> &'static str {
        self.entry().map_or("", |(_, _, text)| text)
    }

    fn entry(self) -> Option<&'static (Self, &'static str, &'static str)> {
        ALL.iter().find(|(code, _, _)| *code == self)
    }
}

/// The runbook of the code with the number `id`; upper and lower case are the same.
pub fn runbook(id: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(_, known, _)| known.eq_ignore_ascii_case(id))
        .map(|(_, _, text)| *text)
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails to compile when a code is added, so that the list below grows with it.
    fn listed(code: Code) -> bool {
        use Code::{
            Conflict, Duplicate, Endpoint, Kind, Manifest, NoLog, NoRevision, NoWake, NotAllowed,
            NotFound, Output, Refused, Rollout, Server, Unreachable,
        };
        match code {
            Manifest | Refused | Duplicate | Kind | Endpoint | Unreachable | NotAllowed
            | NotFound | Conflict | Server | NoWake | NoLog | NoRevision | Rollout | Output => {
                ALL.iter().any(|(one, _, _)| *one == code)
            }
        }
    }

    #[test]
    fn every_code_has_a_unique_number_and_a_complete_runbook() {
        for (code, id, text) in ALL {
            assert!(listed(*code));
            assert_eq!((code.id(), runbook(&id.to_lowercase())), (*id, Some(*text)));
            for part in ["meaning ", "impact ", "find out ", "mend "] {
                assert!(
                    text.lines().any(|line| line.starts_with(part)),
                    "{id} lacks {part}"
                );
            }
        }
        let mut ids: Vec<&str> = ALL.iter().map(|(_, id, _)| *id).collect();
        ids.dedup();
        assert!(ids.is_sorted() && ids.len() == ALL.len());
        assert_eq!(ALL.len(), 15);
    }
}
