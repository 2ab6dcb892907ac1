//! What a node claims about itself in its hello.

use dormouse_nodes::{Claim, labels};

use crate::proto::NodeStatus;
use crate::refused::Refused;

/// Limit of a label's texts in a message, in characters: the longest ones that are right.
const TEXT_MAX: usize = 63;

/// What a node claims in its description, whose labels are checked, too.
pub(crate) fn claim(node: &str, status: Option<&NodeStatus>) -> Result<Claim, Refused> {
    let Some(status) = status else {
        return Ok(Claim::default());
    };
    let is_label = |(key, value): &(&String, &String)| {
        // Control writes this one itself: names of nodes may be longer than values of labels.
        key.as_str() == "kubernetes.io/hostname" || (labels::is_key(key) && labels::is_value(value))
    };
    if let Some((key, value)) = status.labels.iter().find(|one| !is_label(one)) {
        let start = |text: &str| text.chars().take(TEXT_MAX).collect();
        return Err(Refused::Label {
            node: node.to_owned(),
            key: start(key),
            value: start(value),
        });
    }
    Ok(Claim::parse(node, &status.prefix, &status.address)?)
}
