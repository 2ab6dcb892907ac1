//! Reads the facts, in the network namespace of the calling thread. Changes nothing.

pub(crate) mod processes;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_agent_datapath::{Attached, Pinned, foreign_programs};
use dormouse_agent_inspect::client;
use dormouse_agent_inspect::kernel::{Kernel, ask};
use dormouse_agent_netlink::attached::on_link;
use dormouse_agent_pod::names::parse_alias;
use dormouse_agent_pod::{NetworkConfig, saved_config};
use dormouse_agent_sys::clock;
use nix::net::if_::InterfaceFlags;
use nix::sys::statfs::{BPF_FS_MAGIC, CGROUP2_SUPER_MAGIC, FsType, statfs};

use super::facts::{
    AgentFacts, ConflistFacts, Facts, KernelFacts, KubeProxyFacts, LinkFacts, PodFacts,
    StreamFacts, SysctlFacts,
};
use crate::profile::Profile;
use crate::{addresses, install, leftovers};

/// The mount of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
/// The kernel's type information.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Name of the uplink; none: that of the last agent, or eth0.
    pub uplink: Option<String>,
    /// The network profile.
    pub profile: &'static Profile,
    /// The cgroup of the node.
    pub cgroup: PathBuf,
    /// The folder of the network's sysctls.
    pub sysctls: PathBuf,
    /// The state folder of the node.
    pub state_dir: PathBuf,
    /// The folder of pins; none: the node has none.
    pub pins: Option<PathBuf>,
    /// The metrics server of the agent.
    pub agent: SocketAddr,
    /// The folder of network configurations.
    pub conflists: PathBuf,
}

/// The uplink where neither a flag nor an agent says it.
const UPLINK: &str = "eth0";

/// Reads all facts. What cannot be read counts as absent.
pub fn look(places: &Places) -> io::Result<Facts> {
    let saved = saved_config::load(&places.state_dir).ok();
    let last = saved.as_ref().map(|config| config.uplink.clone());
    let uplink = places
        .uplink
        .clone()
        .or(last)
        .unwrap_or_else(|| UPLINK.to_owned());
    let kernel = Kernel::look()?;
    let bridge = saved.as_ref().map(|config| config.bridge.as_str());
    Ok(Facts {
        kernel: of_kernel(&places.cgroup)?,
        link: of_link(&uplink, &kernel)?,
        profile: places.profile,
        sysctls: of_sysctls(&places.sysctls, &uplink, bridge),
        pods: saved.as_ref().map(of_pods),
        agent: of_agent(places),
        stream: of_stream(places.agent),
        kube_proxy: KubeProxyFacts {
            processes: processes::kube_proxy(),
            found: leftovers::look(),
        },
        conflists: of_conflists(&places.conflists),
        programs: of_programs(&kernel),
        uplink,
    })
}

fn of_kernel(cgroup: &Path) -> io::Result<KernelFacts> {
    let is =
        |path: &Path, kind: FsType| statfs(path).is_ok_and(|found| found.filesystem_type() == kind);
    Ok(KernelFacts {
        release: fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned(),
        has_btf: Path::new(BTF).exists(),
        has_cgroup2: is(cgroup, CGROUP2_SUPER_MAGIC),
        cgroup: cgroup.to_owned(),
        has_bpffs: is(Path::new(BPFFS), BPF_FS_MAGIC),
        is_synchronized: clock::is_synchronized().ok(),
    })
}

fn of_link(uplink: &str, kernel: &Kernel) -> io::Result<Option<LinkFacts>> {
    let mut interfaces = nix::ifaddrs::getifaddrs()?;
    let Some(found) = interfaces.find(|entry| entry.interface_name == uplink) else {
        return Ok(None);
    };
    Ok(Some(LinkFacts {
        is_up: found.flags.contains(InterfaceFlags::IFF_UP),
        mtu: mtu(uplink).unwrap_or(0),
        networks: addresses::networks(uplink)?,
        has_default_route: kernel
            .routes
            .iter()
            .any(|route| route.prefix.is_ipv6() && route.length == 0 && route.via.is_some()),
    }))
}

fn mtu(interface: &str) -> Option<u32> {
    let found = ask(async |handle| {
        let mut links = handle
            .link()
            .get()
            .match_name(interface.to_owned())
            .execute();
        let link = futures::TryStreamExt::try_next(&mut links).await;
        Ok(link
            .map_err(io::Error::other)?
            .as_ref()
            .and_then(dormouse_agent_netlink::links::mtu))
    });
    found.ok().flatten()
}

fn of_sysctls(folder: &Path, uplink: &str, bridge: Option<&str>) -> SysctlFacts {
    let read = |name: &str| -> Option<u8> {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let filter = |interface: &str| read(&format!("ipv4/conf/{interface}/rp_filter"));
    // The larger one counts: ip-sysctl of the kernel's documentation.
    let in_force = |interface: &str| Some(filter(interface)?.max(filter("all")?));
    let interfaces = [Some(uplink), bridge].into_iter().flatten();
    SysctlFacts {
        forwarding6: read("ipv6/conf/all/forwarding"),
        forwarding4: read("ipv4/ip_forward"),
        accept_ra: read(&format!("ipv6/conf/{uplink}/accept_ra")),
        rp_filter: interfaces
            .filter_map(|name| Some((name.to_owned(), in_force(name)?)))
            .collect(),
    }
}

fn of_pods(config: &NetworkConfig) -> PodFacts {
    PodFacts {
        prefix: config.prefix,
        delivered: config.delivered,
        has_ipv4: config.range4.is_some(),
        bridge_mtu: mtu(&config.bridge),
    }
}

fn of_agent(places: &Places) -> AgentFacts {
    match client::status(places.agent, "/readyz") {
        Ok((status, text)) => of_answer(places.agent, status, &text),
        Err(_)
            if places
                .pins
                .as_deref()
                .is_some_and(|pins| Pinned::open(pins).is_ok()) =>
        {
            AgentFacts::Gone
        }
        Err(_) => AgentFacts::Absent,
    }
}

/// The agent by its answer: an agent answers 200 or 503.
fn of_answer(at: SocketAddr, status: u16, text: &str) -> AgentFacts {
    match status {
        200 => AgentFacts::Ready,
        503 => AgentFacts::Waiting(text.trim().to_owned()),
        _ => AgentFacts::Other { at, status },
    }
}

fn of_stream(agent: SocketAddr) -> StreamFacts {
    let metrics = client::status(agent, "/metrics").map(|(_status, text)| text);
    metrics.map_or(StreamFacts::None, |text| of_metrics(&text))
}

/// The stream by the agent's metrics.
fn of_metrics(text: &str) -> StreamFacts {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("dormouse_fleet_secured "));
    match values.next() {
        Some("0") => StreamFacts::Plain,
        Some(_) => StreamFacts::Secured,
        None => StreamFacts::None,
    }
}

fn of_conflists(folder: &Path) -> ConflistFacts {
    let files = install::configurations(folder).into_iter().map(|name| {
        let is_own = install::is_own(&folder.join(&name));
        (name.to_string_lossy().into_owned(), is_own)
    });
    ConflistFacts {
        folder: folder.to_owned(),
        files: files.collect(),
    }
}

/// The programs of others on all links but those of pods, which have the agent's only. A link that is gone meanwhile has none.
fn of_programs(kernel: &Kernel) -> Vec<(String, Attached)> {
    let mut all = Vec::new();
    let others = kernel
        .links
        .iter()
        .filter(|link| parse_alias(&link.alias).is_none());
    for link in others {
        let found = ask(async |handle| on_link(&handle, link.index).await).unwrap_or_default();
        let foreign = foreign_programs(&link.name, &found);
        all.extend(
            foreign
                .into_iter()
                .map(|program| (link.name.clone(), program)),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_known_by_the_status_of_its_answer() {
        let at = "[::1]:10249".parse().unwrap();
        assert_eq!(of_answer(at, 200, ""), AgentFacts::Ready);
        let waits = AgentFacts::Waiting("no podCIDRs".to_owned());
        assert_eq!(of_answer(at, 503, "no podCIDRs\n"), waits);
        let stream = |value| of_metrics(&format!("# HELP a\ndormouse_fleet_secured{value}\n"));
        assert_eq!(stream(" 0"), StreamFacts::Plain);
        assert_eq!(stream(" 1"), StreamFacts::Secured);
        assert_eq!(stream("_other 0"), StreamFacts::None);
        let other = AgentFacts::Other { at, status: 404 };
        assert_eq!(of_answer(at, 404, "404 page not found\n"), other);
    }
}
