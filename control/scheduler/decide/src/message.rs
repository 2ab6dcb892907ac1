//! The texts of failed attempts, as pods' conditions and events have them.

use std::collections::BTreeMap;

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

/// The text for a pod that all nodes rejected: each reason with the number of nodes, sorted as text. `absent` is the
/// reason of nodes without a verdict of their own.
pub(crate) fn rejected<'a>(
    nodes_len: usize,
    statuses: impl Iterator<Item = &'a Status>,
    absent: Option<&str>,
) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut statuses_len = 0;
    for status in statuses {
        statuses_len += 1;
        for reason in &status.reasons {
            *counts.entry(reason).or_default() += 1;
        }
    }
    let absent_len = nodes_len.saturating_sub(statuses_len);
    if let Some(reason) = absent.filter(|_| absent_len > 0) {
        *counts.entry(reason).or_default() += absent_len;
    }
    let mut reasons: Vec<_> = counts
        .into_iter()
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
        assert_eq!(
            rejected(15, all.iter(), Some("d")),
            "0/15 nodes are available: 1 a, 10 b, 2 c, 2 d."
        );
        assert_eq!(
            rejected(13, all.iter(), Some("d")),
            rejected(13, all.iter(), None)
        );
        assert_eq!(rejected(1, [].iter(), None), "0/1 nodes are available:");
    }
}
