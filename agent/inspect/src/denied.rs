//! `deny list`: the sources outside that a node denies, with their origin and their ends.

use std::time::Duration;

use dormouse_agent_datapath::{Pinned, WITHOUT_END};
use dormouse_agent_services::Prefix;
use dormouse_ebpf::decide::Tables as _;
use serde::Serialize;

use super::InspectError;
use super::output::{Column, Row, age};

/// A denied prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeniedRow {
    /// The prefix.
    pub prefix: String,
    /// `command`, `file`, or `unknown` without the node's state folder.
    pub origin: &'static str,
    /// Time until it ends; none: it has no end.
    pub seconds_left: Option<u64>,
}

impl Row for DeniedRow {
    const KIND: &'static str = "DeniedPrefixList";
    const COLUMNS: &'static [Column] = &[("PREFIX", false), ("ORIGIN", false), ("ENDS-IN", false)];

    fn cells(&self) -> Vec<String> {
        let ends_in = self.seconds_left.map_or("never".to_owned(), age);
        vec![self.prefix.clone(), self.origin.to_owned(), ends_in]
    }

    fn name(&self) -> String {
        format!("denied/{}", self.prefix)
    }
}

/// The entries in force, by prefix. One inside another that ends no earlier has none.
pub fn rows(
    pinned: &Pinned,
    origin: impl Fn(&Prefix) -> &'static str,
) -> Result<Vec<DeniedRow>, InspectError> {
    let (mut denied, now_ns) = (pinned.denied()?, pinned.now_ns());
    denied.sort_unstable_by_key(|one| one.prefix);
    let row = |one: &dormouse_agent_datapath::Denied| DeniedRow {
        prefix: one.prefix.to_string(),
        origin: origin(&one.prefix),
        seconds_left: (one.until_ns != WITHOUT_END)
            .then(|| Duration::from_nanos(one.until_ns.saturating_sub(now_ns)).as_secs()),
    };
    Ok(denied.iter().map(row).collect())
}
