//! Deviations of plugins, as data: case, releases, reason.

use std::fmt;

/// A case, or one version of it as `case@version`, that a plugin is known to fail.
pub(crate) struct Deviation {
    pub(crate) case: &'static str,
    releases: Releases,
    pub(crate) reason: &'static str,
    /// Not at each run: it is a matter of the moment.
    pub(crate) sometimes: bool,
}

/// Releases of a plugin, by the versions that they support.
enum Releases {
    Every,
    /// Those without 1.1.0.
    Old,
    /// Those that do.
    New,
}

impl Deviation {
    pub(crate) fn names(&self, case: &str) -> bool {
        self.case.split('@').next() == Some(case)
    }

    pub(crate) fn is_for(&self, case: &str, version: &str, spoken: &[String]) -> bool {
        let new = spoken.iter().any(|version| version == "1.1.0");
        let release = match self.releases {
            Releases::Every => true,
            Releases::Old => !new,
            Releases::New => new,
        };
        let versions = self.case.split_once('@');
        release && self.names(case) && versions.is_none_or(|(_, only)| only == version)
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.case)
    }
}

const fn every(case: &'static str, reason: &'static str) -> Deviation {
    Deviation {
        case,
        releases: Releases::Every,
        reason,
        sometimes: false,
    }
}

const fn sometimes(case: &'static str, reason: &'static str) -> Deviation {
    Deviation {
        case,
        releases: Releases::Every,
        reason,
        sometimes: true,
    }
}

const fn old(case: &'static str, reason: &'static str) -> Deviation {
    Deviation {
        case,
        releases: Releases::Old,
        reason,
        sometimes: false,
    }
}

const fn new(case: &'static str, reason: &'static str) -> Deviation {
    Deviation {
        case,
        releases: Releases::New,
        reason,
        sometimes: false,
    }
}

const NO_GC: &str = "neither `bridge` nor `host-local` collects garbage";
const ADDS_UP: &str = "`host-local` adds up what it finds in all places";
const NO_CHAIN: &str = "`bridge` must be first: it forgets `prevResult`";
const NO_DAEMON: &str = "there is no daemon that could be down";
const INTERNAL: &str = "nearly every error has the code 999";
const OTHERS: &str = "a plugin of its own does that";

/// What the reference `bridge` and `host-local` do otherwise, in 1.1.1 and in newer ones.
pub(crate) const REFERENCE: &[Deviation] = &[
    every("codes/2 for a field that is not done", OTHERS),
    every("codes/3 for an unknown container", INTERNAL),
    every("codes/11 when ADD may succeed later", NO_DAEMON),
    every(
        "codes/an error has the configuration's version",
        "the library's errors have no `cniVersion`",
    ),
    new("codes/50 when ADD cannot succeed", NO_DAEMON),
    new(
        "codes/50 when no address is left",
        "`host-local` has no STATUS",
    ),
    new(
        "codes/51 when existing pods suffer too",
        "STATUS does not look at the bridge",
    ),
    sometimes(
        "burst/all at once on a fresh node",
        "the bridge's address changes with its first ports, between two looks at it",
    ),
    every("capabilities/mac that is none", INTERNAL),
    every("capabilities/unknown ones are refused", "they are ignored"),
    every("capabilities/bandwidth out of a pod", OTHERS),
    every("capabilities/bandwidth into a pod", OTHERS),
    every("capabilities/bandwidth that is none", OTHERS),
    every("chain/as a later plugin", NO_CHAIN),
    every("chain/as a later plugin, until DEL", NO_CHAIN),
    every("delete/the path is a plain file", "it is an error"),
    every(
        "delete/the path is another namespace's",
        "it deletes whatever has the name",
    ),
    every(
        "duplicates/the same attachment in another namespace",
        "a failed ADD leaves its link for DEL",
    ),
    sometimes(
        "killed/then DEL",
        "an empty lease file matches no pod (plugins#498)",
    ),
    sometimes(
        "killed/asked to end, then DEL",
        "an empty lease file matches no pod (plugins#498)",
    ),
    new("killed/then never a DEL", NO_GC),
    every(
        "namespaces/the node's own",
        "it is refused after it has been wired",
    ),
    every("namespaces/a process's", INTERNAL),
    every("namespaces/a path that is none", INTERNAL),
    old("verbs/version", "1.1.0 is newer than it"),
    old(
        "collect/GC and STATUS are not in older versions",
        "1.1.0 is newer than it: an unknown command",
    ),
    new("verbs/gc", NO_GC),
    new("collect/an empty list keeps nothing", NO_GC),
    new("collect/a missing list is refused", NO_GC),
    new("collect/null frees what is dead", NO_GC),
    new("collect/the key that libcni once sent", NO_GC),
    new("collect/lists that are none", NO_GC),
    new("collect/an interface of a container that stays", NO_GC),
    every(
        "requested/a refusal leaves nothing",
        "a failed ADD leaves its link for DEL",
    ),
    every("requested/with a wrong prefix length", "it is ignored"),
    every("requested/args before CNI_ARGS", ADDS_UP),
    every("requested/runtimeConfig before all", ADDS_UP),
    every("streams/an endless configuration", "all is read"),
    every("streams/an input without an end", "it waits for ever"),
    every("passthrough/unknown fields", NO_CHAIN),
    every("passthrough/byte by byte", NO_CHAIN),
    every("passthrough/routes without a gateway", NO_CHAIN),
    every(
        "identity/a container id comes again",
        "the lease of the lost pod is in the way for ever",
    ),
];
