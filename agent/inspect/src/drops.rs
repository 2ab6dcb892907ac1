//! Counts of dropped, refused and reset packets, by reason and by Service.

use std::collections::{BTreeMap, HashMap};

use dormouse_agent_datapath::{Pinned, Verdict};
use dormouse_ebpf::maps::{DropKey, NO_SLOT};
use serde::Serialize;

use super::InspectError;
use super::names::Names;
use super::output::{Column, Row};
use super::reason::{Reason, code, reason};

/// Packets dropped, refused or reset for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DropRow {
    /// Packets since the maps were created.
    pub count: u64,
    /// The reason, with its texts.
    #[serde(flatten)]
    pub reason: Reason,
    /// The reason's code, as `DM6020`.
    pub code: String,
    /// The Service, app or address; none: the packet belonged to no slot.
    pub service: Option<String>,
    /// The slot; none: the packet belonged to no slot.
    pub slot: Option<u32>,
}

impl Row for DropRow {
    const KIND: &'static str = "DropList";
    const COLUMNS: &'static [Column] = &[
        ("COUNT", false),
        ("ACTION", false),
        ("REASON", false),
        ("CODE", false),
        ("SERVICE", false),
        ("MEANING", false),
        ("SLOT", true),
        ("NEXT", true),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.count.to_string(),
            self.reason.kind.to_owned(),
            self.reason.name.to_owned(),
            self.code.clone(),
            self.service.clone().unwrap_or_default(),
            self.reason.meaning.to_owned(),
            self.slot.map(|slot| slot.to_string()).unwrap_or_default(),
            self.reason.next.to_owned(),
        ]
    }

    fn name(&self) -> String {
        format!("drop/{}", self.code)
    }
}

/// Reads the counters, the highest first.
pub fn read(pinned: &Pinned, names: &Names) -> Result<Vec<DropRow>, InspectError> {
    let counted = counted(&pinned.stats()?, &pinned.drops()?);
    let row = |((verdict, slot), count): ((u32, u32), u64)| {
        let verdict = Verdict::ALL.get(verdict as usize).copied()?;
        Some(DropRow {
            count,
            reason: reason(verdict)?,
            code: code(verdict),
            service: names.of_slot(pinned, slot),
            slot: (slot != NO_SLOT).then_some(slot),
        })
    };
    let mut rows: Vec<DropRow> = counted.into_iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.code.cmp(&b.code)));
    Ok(rows)
}

/// Counts by verdict and slot. The part of a verdict's total that no slot counted is listed without a slot.
fn counted(stats: &[(Verdict, u64)], drops: &HashMap<DropKey, u64>) -> BTreeMap<(u32, u32), u64> {
    let mut counted = BTreeMap::new();
    let mut known: HashMap<u32, u64> = HashMap::new();
    for (key, count) in drops.iter().filter(|(key, _)| key.slot != NO_SLOT) {
        counted.insert((key.verdict, key.slot), *count);
        *known.entry(key.verdict).or_default() += count;
    }
    for (verdict, total) in stats {
        let known = known.get(&(*verdict as u32)).copied().unwrap_or(0);
        // The counters change while they are read.
        let rest = total.saturating_sub(known);
        if rest > 0 {
            counted.insert((*verdict as u32, NO_SLOT), rest);
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_no_slot_counted_are_listed_without_a_slot() {
        let drops = [
            (
                DropKey {
                    slot: 7,
                    verdict: 17,
                },
                2,
            ),
            (
                DropKey {
                    slot: NO_SLOT,
                    verdict: 17,
                },
                9,
            ),
        ];
        let drops = drops.into_iter().collect();
        let stats = [
            (Verdict::Rejected, 5),
            (Verdict::DroppedHops, 1),
            (Verdict::Reset, 0),
        ];
        let counted = counted(&stats, &drops);
        let wanted = [((10, NO_SLOT), 1), ((17, 7), 2), ((17, NO_SLOT), 3)];
        assert_eq!(counted.into_iter().collect::<Vec<_>>(), wanted);
    }
}
