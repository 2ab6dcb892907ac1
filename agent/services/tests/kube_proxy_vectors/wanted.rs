//! Where our own decisions differ from kube-proxy's, and why.

/// The scenario and the reason, sorted by scenario.
pub(crate) const DIFFERENCES: [(&str, &str); 0] = [];
