//! Runbooks of the codes that do not belong to one command: of output, and of the agent's inspection commands.

/// Output that could not be written, or a reply that could not be parsed.
pub const OUTPUT: &str = "DM1401";
/// Its runbook.
pub const OUTPUT_TEXT: &str = "\
meaning  the output could not be written, or the reply is not of the form that this command expects
impact   the request was carried out; only its result is not printed
find out compare the versions of command and server: dormouse --version, curl -g ADDRESS/version
mend     use the same version on both sides, or -o json
";
/// The answer of an inspection command is no.
pub const ANSWER: &str = "DM2000";
/// An argument of an inspection command cannot be parsed.
pub const USAGE: &str = "DM2002";
/// The data path of the node cannot be read.
pub const UNREACHABLE: &str = "DM2003";
/// The kernel denied the permission.
pub const NOT_ALLOWED: &str = "DM2004";
/// There is nothing of this name on the node.
pub const NOT_FOUND: &str = "DM2005";

/// The codes with their runbooks: meaning, impact, diagnosis and remedy.
const ALL: &[(&str, &str)] = &[
    (
        OUTPUT,
        OUTPUT_TEXT,
    ),
    (
        ANSWER,
        "\
meaning  a command of dormouse-agent could not read what it asked the node for
impact   nothing was changed: these commands only read
find out the message has the kernel's or the agent's reason
mend     as the line try says
",
    ),
    (
        USAGE,
        "\
meaning  an argument of a command of dormouse-agent cannot be parsed, or does not make sense
impact   nothing was changed
find out dormouse-agent COMMAND --help has examples
mend     write the argument as the line try says
",
    ),
    (
        UNREACHABLE,
        "\
meaning  the node's pinned maps cannot be opened: no agent has run here, or its pins are in another folder
impact   none: the data path is not changed by reading it
find out ls /sys/fs/bpf/dormouse lists the nodes of this host; is dormouse-agent running
mend     start the agent, or give the folder with --node or --bpffs
",
    ),
    (
        NOT_ALLOWED,
        "\
meaning  the kernel does not let this user read the data path
impact   none
find out id -u is 0 for root; a container also needs CAP_BPF and CAP_NET_ADMIN
mend     run the command as root
",
    ),
    (
        NOT_FOUND,
        "\
meaning  this node has no Service, port, address or code of this name
impact   none
find out dormouse-agent get services -A, get pods, get drops
mend     correct the name, or ask another node
",
    ),
];

/// The codes of this list.
pub fn codes() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(id, _)| *id)
}

/// The runbook of a code of this list; upper and lower case are the same.
pub fn runbook(code: &str) -> Option<&'static str> {
    let found = ALL.iter().find(|(id, _)| id.eq_ignore_ascii_case(code));
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runbook_is_complete() {
        for (id, text) in ALL {
            for part in ["meaning ", "impact ", "find out ", "mend "] {
                let has = text.lines().any(|line| line.starts_with(part));
                assert!(has, "{id} lacks {part}");
            }
            assert_eq!(runbook(&id.to_lowercase()), Some(*text));
        }
    }
}
