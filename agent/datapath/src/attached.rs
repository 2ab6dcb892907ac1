//! The programs of others on a link: they see packets before or after those of this data path.

use aya::programs::{SchedClassifier, TcAttachType, loaded_programs};
use dormouse_agent_netlink::attached::OnLink;
use dormouse_agent_netlink::classifier::Side;

/// The starts of the names of this data path's programs on links.
const OWN: [&str; 2] = ["tcx_", "xdp_uplink"];

/// A program on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// `xdp`, or a side of `tcx` or `clsact`.
    pub hook: &'static str,
    /// Its name.
    pub name: String,
}

/// The programs on a link that are not of this data path. `found`: what netlink lists of it.
pub fn foreign_programs(link: &str, found: &OnLink) -> Vec<Attached> {
    let mut all: Vec<Attached> = found
        .classifiers
        .iter()
        .map(|(side, name)| Attached {
            hook: match side {
                Side::Ingress => "clsact ingress",
                Side::Egress => "clsact egress",
            },
            name: name.clone(),
        })
        .collect();
    if !found.xdp.is_empty() {
        all.extend(xdp(&found.xdp));
    }
    for (hook, side) in [
        ("tcx ingress", TcAttachType::Ingress),
        ("tcx egress", TcAttachType::Egress),
    ] {
        // A kernel without TCX has no such programs.
        let (_, programs) = SchedClassifier::query_tcx(link, side).unwrap_or_default();
        all.extend(programs.iter().map(|program| Attached {
            hook,
            name: String::from_utf8_lossy(program.name()).into_owned(),
        }));
    }
    all.retain(|program| !OWN.iter().any(|own| program.name.starts_with(own)));
    all
}

/// Programs of XDP by their ids. One that cannot be found by now is named by its id.
fn xdp(ids: &[u32]) -> impl Iterator<Item = Attached> {
    let loaded: Vec<_> = loaded_programs().filter_map(Result::ok).collect();
    ids.iter().map(move |id| {
        let program = loaded.iter().find(|program| program.id() == *id);
        Attached {
            hook: "xdp",
            name: program.map_or_else(
                || format!("program {id}"),
                |program| String::from_utf8_lossy(program.name()).into_owned(),
            ),
        }
    })
}
