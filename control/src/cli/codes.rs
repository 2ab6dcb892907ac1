//! Every code that a command can end with, and what its runbook says: one place for both, so none is without.

/// What can go wrong, as a number that people can look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A file cannot be read, or is no manifest.
    Manifest,
    /// The server refused an object.
    Refused,
    /// A manifest contradicts itself.
    Twice,
    /// There is no such kind of object.
    Kind,
    /// It is not known which server to ask.
    Endpoint,
    /// The server cannot be reached.
    Unreachable,
    /// The server does not allow it.
    NotAllowed,
    /// The object does not exist.
    NotFound,
    /// Somebody else changed the object.
    Conflict,
    /// The server failed.
    Server,
    /// The app was not woken yet.
    NoWake,
    /// The answer cannot be shown.
    Output,
}

/// The text for each code, in order of number.
pub const ALL: &[(Code, &str, &str)] = &[
    (Code::Manifest, "DM1101", MANIFEST),
    (Code::Refused, "DM1102", REFUSED),
    (Code::Twice, "DM1103", TWICE),
    (Code::Kind, "DM1104", KIND),
    (Code::Endpoint, "DM1201", ENDPOINT),
    (Code::Unreachable, "DM1203", UNREACHABLE),
    (Code::NotAllowed, "DM1204", NOT_ALLOWED),
    (Code::NotFound, "DM1301", NOT_FOUND),
    (Code::Conflict, "DM1302", CONFLICT),
    (Code::Server, "DM1303", SERVER),
    (Code::NoWake, "DM1304", NO_WAKE),
    (Code::Output, "DM1401", OUTPUT),
];

const MANIFEST: &str = "\
meaning  a file could not be read, or what it holds is no YAML or JSON manifest
impact   nothing was changed: all files are read before anything is sent
find out the message names the file and, for YAML, the line
mend     give each document apiVersion, kind, metadata.name and spec; separate documents by a line ---
";
const REFUSED: &str = "\
meaning  the server refused an object: a field is unknown, missing or not allowed
impact   nothing was changed: every document is tried before the first is stored
find out each line below the error names one field by its path, and what is allowed there
mend     change the field as the line says and apply again
";
const TWICE: &str = "\
meaning  one manifest describes an object twice, or gives two apps the same VIP
impact   nothing was changed
find out the message names the object and both documents by their numbers
mend     remove or rename one of them; leave vip out to be given a free one
";
const KIND: &str = "\
meaning  there is no such kind of object here
impact   nothing was changed
find out the kinds are app (dormouse.dev/v1alpha1), pod, node and event (v1)
mend     correct the noun, or apiVersion and kind in the manifest
";
const ENDPOINT: &str = "\
meaning  it is not known which server to ask: the address or the kubeconfig cannot be read
impact   nothing was asked
find out the address comes from --endpoint, DORMOUSE_ENDPOINT, the kubeconfig, or is http://[::1]:6443
mend     write --endpoint http://[ADDRESS]:6443
";
const UNREACHABLE: &str = "\
meaning  the server did not take the connection, or did not answer
impact   commands do not work; apps do: the data path does not need the API
find out is `dormouse up` running, and does the address answer: curl -g ADDRESS/readyz
mend     start control, or correct the address
";
const NOT_ALLOWED: &str = "\
meaning  the server knows who asks and does not allow it
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
meaning  somebody else changed the object at the same time, or it exists already
impact   the other change stands, this one was not made
find out dormouse get NOUN NAME -o yaml shows what it is now
mend     try again
";
const SERVER: &str = "\
meaning  the server could not do its work: often its store is away
impact   commands that write do not work; apps do
find out the message carries the server's own reason; its log has more
mend     restart control if its store is gone; else report it with the message
";
const NO_WAKE: &str = "\
meaning  no wake of this app is remembered: it did not sleep since control started
impact   none
find out dormouse get app NAME shows when it was last woken
mend     send it a request while it sleeps
";
const OUTPUT: &str = "\
meaning  the answer could not be written, or is not of the form this command expects
impact   what was asked for was done, it is only not shown
find out do command and server have the same version: dormouse --version, curl -g ADDRESS/version
mend     use the same version on both sides, or -o json
";

impl Code {
    /// The code as it is printed.
    pub fn id(self) -> &'static str {
        self.entry().map_or("DM0000", |(_, id, _)| id)
    }

    /// What the code means and what to do.
    pub fn runbook(self) -> &'static str {
        self.entry().map_or("", |(_, _, text)| text)
    }

    fn entry(self) -> Option<&'static (Self, &'static str, &'static str)> {
        ALL.iter().find(|(code, _, _)| *code == self)
    }
}

/// The runbook of the code that is printed as `id`, in any case of letters.
pub fn runbook(id: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(_, known, _)| known.eq_ignore_ascii_case(id))
        .map(|(_, _, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails to compile when a code is added, so that the list below grows with it.
    fn listed(code: Code) -> bool {
        use Code::{
            Conflict, Endpoint, Kind, Manifest, NoWake, NotAllowed, NotFound, Output, Refused,
            Server, Twice, Unreachable,
        };
        match code {
            Manifest | Refused | Twice | Kind | Endpoint | Unreachable | NotAllowed | NotFound
            | Conflict | Server | NoWake | Output => ALL.iter().any(|(one, _, _)| *one == code),
        }
    }

    #[test]
    fn every_code_has_a_number_of_its_own_and_a_whole_runbook() {
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
        assert_eq!(ALL.len(), 12);
    }
}
