//! The texts of failed attempts, as pods' conditions and events have them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// The text for a cluster without nodes.
pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";

/// The text for a pod that PreFilter rejected.
pub(crate) fn rejected_at_once(nodes_len: usize, status: &Status) -> String {
    let reason = status.message();
    let dot = if reason.is_empty() {
        String::new()
    } else {
        format!(" {reason}.")
    };
    format!("0/{nodes_len} nodes are available:{dot}")
}

/// The reasons of nodes that rejected a pod, each with the number of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reasons {
    counts: BTreeMap<String, usize>,
    nodes_len: usize,
}

impl Reasons {
    pub(crate) fn of<'a>(statuses: impl Iterator<Item = &'a Status>) -> Self {
        Self::counted(statuses.map(|status| (status, 1)))
    }

    /// The same of verdicts that several nodes gave.
    pub(crate) fn counted<'a>(statuses: impl Iterator<Item = (&'a Status, usize)>) -> Self {
        let mut all = Self::default();
        for (status, nodes_len) in statuses {
            all.nodes_len += nodes_len;
            for reason in &status.reasons {
                all.count(reason, nodes_len);
            }
        }
        all
    }

    fn count(&mut self, reason: &str, nodes_len: usize) {
        match self.counts.get_mut(reason) {
            Some(count) => *count += nodes_len,
            None => _ = self.counts.insert(reason.to_owned(), nodes_len),
        }
    }

    /// Adds the reasons of other nodes.
    pub(crate) fn merge(&mut self, more: Self) {
        self.nodes_len += more.nodes_len;
        for (reason, count) in more.counts {
            self.count(&reason, count);
        }
    }

    /// The text for a pod that all nodes rejected: each reason with the number of nodes, sorted as text. `absent` is the
    /// reason of nodes without a verdict of their own.
    pub(crate) fn text(&self, nodes_len: usize, absent: Option<&str>) -> String {
        let mut all = self.clone();
        let absent_len = nodes_len.saturating_sub(self.nodes_len);
        if let Some(reason) = absent.filter(|_| absent_len > 0) {
            all.count(reason, absent_len);
        }
        let counts = all.counts.into_iter();
        let mut reasons: Vec<_> = counts
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort_unstable();
        let reasons = reasons.join(", ");
        let dot = if reasons.is_empty() {
            String::new()
        } else {
            format!(" {reasons}.")
        };
        format!("0/{nodes_len} nodes are available:{dot}")
    }
}

/// A text with the one of PostFilter after it.
pub(crate) fn with_post_filter(text: String, post_filter: &str) -> String {
    if post_filter.is_empty() {
        text
    } else {
        format!("{text} {post_filter}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_as_text() {
        let status = |reason: &str| Status::unschedulable(reason);
        let mut all = vec![status("b"); 10];
        all.extend([status("a"), status("c"), status("c")]);
        let mut reasons = Reasons::of(all[..4].iter());
        reasons.merge(Reasons::of(all[4..].iter()));
        assert_eq!(
            reasons.text(15, Some("d")),
            "0/15 nodes are available: 1 a, 10 b, 2 c, 2 d."
        );
        assert_eq!(reasons.text(13, Some("d")), reasons.text(13, None));
        let none = Reasons::default();
        assert_eq!(none.text(1, None), "0/1 nodes are available:");
    }
}
