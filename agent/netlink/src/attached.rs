//! What is attached to a link, by whomever: XDP programs and classifiers.

use std::io;

use futures::TryStreamExt;
use netlink_packet_route::link::{LinkAttribute, LinkXdp};
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use rtnetlink::Handle;

use crate::classifier::Side;

/// What is attached to one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnLink {
    /// The ids of its XDP programs.
    pub xdp: Vec<u32>,
    /// Its classifiers: side, and the name of the program, or the kind of one that is no program.
    pub classifiers: Vec<(Side, String)>,
}

/// Reads what is attached to the link with this index.
pub async fn on_link(handle: &Handle, index: u32) -> io::Result<OnLink> {
    let mut found = OnLink::default();
    let mut links = handle.link().get().match_index(index).execute();
    while let Some(link) = links.try_next().await.map_err(io::Error::other)? {
        for attribute in link.attributes {
            if let LinkAttribute::Xdp(options) = attribute {
                found.xdp.extend(options.iter().filter_map(xdp_program));
            }
        }
    }
    for side in [Side::Ingress, Side::Egress] {
        let get = handle.traffic_filter(index.cast_signed()).get();
        let get = match side {
            Side::Ingress => get.ingress(),
            Side::Egress => get.egress(),
        };
        let filters: Vec<TcMessage> = get.execute().try_collect().await.unwrap_or_default();
        let names = filters
            .iter()
            .filter_map(|filter| Some((side, name(filter)?)));
        found.classifiers.extend(names);
    }
    Ok(found)
}

fn xdp_program(option: &LinkXdp) -> Option<u32> {
    match option {
        LinkXdp::ProgId(id) => Some(*id),
        _ => None,
    }
}

/// The name of a classifier; none for the head of a chain, which has no options.
fn name(filter: &TcMessage) -> Option<String> {
    let mut kind = None;
    for attribute in &filter.attributes {
        match attribute {
            TcAttribute::Kind(text) => kind = Some(text.clone()),
            TcAttribute::Options(options) => {
                let name = options.iter().rev().find_map(|option| match option {
                    TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.clone()),
                    _ => None,
                });
                return name
                    .or(kind)
                    .map(|name| name.trim_end_matches('\0').to_owned());
            }
            _ => {}
        }
    }
    None
}
