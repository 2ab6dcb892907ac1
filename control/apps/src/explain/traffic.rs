//! How an app's traffic is divided, and why not as in its manifest.

use dormouse_cluster::app::TRAFFIC_READY;
use dormouse_cluster::revision::key_of;

use crate::record::AppRecord;

/// A line for each target of the split in force, and the condition's message unless the split of the manifest is in force.
pub(super) fn traffic(record: &AppRecord) -> Vec<String> {
    let status = record.app.as_ref().and_then(|app| app.status.as_ref());
    let Some(status) = status else {
        return Vec::new();
    };
    let targets = status.traffic.iter().map(|target| {
        let name = key_of(&record.key, target.revision).name;
        let latest = if target.latest { " (latest)" } else { "" };
        let tag = target.tag.as_ref();
        let tag = tag.map(|tag| format!(", tag {tag}")).unwrap_or_default();
        format!("{}% {name}{latest} at {}{tag}", target.percent, target.vip)
    });
    let condition = status.condition(TRAFFIC_READY);
    let condition = condition.filter(|condition| condition.status != "True");
    let condition =
        condition.map(|condition| format!("{}: {}", condition.reason, condition.message));
    targets.chain(condition).collect()
}
