//! Loading of the BPF object: pins new maps, attaches programs, or updates pinned links with the new programs.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aya::maps::{Array, Map, MapData};
use aya::programs::links::{FdLink, LinkError, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{
    CgroupAttachMode, CgroupSkbAttachType, Program, ProgramError, SchedClassifier, TcAttachType,
    Xdp, XdpMode,
};
use aya::{Ebpf, EbpfLoader};
use dormouse_agent_netlink::classifier::Side;
use dormouse_agent_sys::bpf;
use dormouse_agent_sys::words::Words;
use dormouse_ebpf::opening::opening_max;
use dormouse_ebpf::packet_filter::PacketFilter;
use dormouse_ebpf::packet_log;

use super::arrays::Arrays;
use super::error::DatapathError;
use super::probe::{Findings, Step, judge};
use super::{Config, interface};

/// The object file, built by the build script.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("DORMOUSE_EBPF_OBJECT"));

/// BPF links always allow several programs on a cgroup, without BPF_F_ALLOW_MULTI.
const LINK: CgroupAttachMode = CgroupAttachMode::Single;

/// The program of the uplink's driver, which not every driver takes.
pub(super) const XDP_PROGRAM: &str = "xdp_uplink";

/// The programs on the pods' links, which are attached per pod.
pub(super) const POD_PROGRAMS: [(&str, Side); 2] =
    [("tcx_pod_out", Side::Egress), ("tcx_pod_in", Side::Ingress)];

/// The programs in the order of attachment: the one that answers for pods is last, when all others work.
const PROGRAMS: &[&str] = &[
    "cg_sock_release",
    "cg_getpeername4",
    "cg_getpeername6",
    "cg_recvmsg4",
    "cg_recvmsg6",
    "cg_sendmsg4",
    "cg_sendmsg6",
    "cg_egress",
    "cg_connect4",
    "cg_connect6",
    "tcx_uplink_out",
    "tcx_uplink_in",
];

/// The loaded object.
#[derive(Debug)]
pub(super) struct Loaded {
    object: Ebpf,
    /// Whether its packet programs are those that log.
    logs: bool,
}

/// What programs are attached to: ifindex of the uplink, inode of the cgroup.
#[derive(Debug)]
pub(super) struct Target {
    uplink: u64,
    cgroup: u64,
}

impl Target {
    /// Finds both, before anything is created.
    pub(super) fn find(config: &Config) -> Result<Self, DatapathError> {
        let (uplink, _) = interface::interface(&config.uplink)?;
        let wrong = |source| DatapathError::Cgroup {
            path: config.cgroup.clone(),
            source,
        };
        let cgroup = cgroup(&config.cgroup)?;
        let found = nix::sys::statfs::fstatfs(&cgroup).map_err(|error| wrong(error.into()))?;
        if found.filesystem_type() != nix::sys::statfs::CGROUP2_SUPER_MAGIC {
            return Err(wrong(io::Error::other("it is not a cgroup2 file system")));
        }
        Ok(Self {
            uplink: uplink.into(),
            cgroup: cgroup.metadata().map_err(wrong)?.ino(),
        })
    }

    fn of(&self, program: &Program) -> u64 {
        match program {
            Program::CgroupSockAddr(_) | Program::CgroupSock(_) | Program::CgroupSkb(_) => {
                self.cgroup
            }
            _ => self.uplink,
        }
    }
}

impl Loaded {
    /// Loads all programs; reuses the maps that are pinned in `pins`, creates and pins the others. Packets that the filter selects are logged.
    pub(super) fn open(
        pins: &Path,
        flows_max: u32,
        logged: Option<&PacketFilter>,
    ) -> Result<Self, DatapathError> {
        let mut loader = EbpfLoader::new();
        if logged.is_none() {
            loader.map_max_entries(packet_log::MAP, packet_log::UNUSED_BYTES);
        }
        let object = loader
            .default_map_pin_directory(pins)
            .map_max_entries("flow", flows_max)
            .map_max_entries("opening", opening_max(flows_max))
            // This map's definition in the object cannot say that it is pinned.
            .map_pin_path("socket", pins.join("socket"))
            .load(OBJECT)?;
        let mut opened = Self {
            object,
            logs: logged.is_some(),
        };
        if let Some(filter) = logged {
            opened.filter_packets(filter)?;
        }
        for &name in PROGRAMS
            .iter()
            .chain(POD_PROGRAMS.iter().map(|(name, _)| name))
        {
            load(name, opened.program_mut(name)?)?;
        }
        Ok(opened)
    }

    fn filter_packets(&mut self, filter: &PacketFilter) -> Result<(), DatapathError> {
        let name = "log_filter";
        let map = self.object.map_mut(name);
        let map = map.ok_or(DatapathError::Absent { name })?;
        let mut row: Array<_, PacketFilter> =
            Array::try_from(map).map_err(DatapathError::map("open", name))?;
        row.set(0, filter, 0)
            .map_err(DatapathError::map("write", name))
    }

    /// Attaches each program, or updates the link that is pinned under its name.
    pub(super) fn attach(
        &mut self,
        pins: &Path,
        config: &Config,
        target: &Target,
    ) -> Result<(), DatapathError> {
        for &name in PROGRAMS {
            let program = self.program_mut(name)?;
            let pin = pins.join(format!("link_{name}"));
            let fd = program
                .fd()
                .map_err(DatapathError::program("take over", name))?;
            if taken_over(&pin, fd.as_fd(), name, target.of(program))? {
                continue;
            }
            let link = attach(program, name, config)?;
            link.pin(&pin)
                .map_err(DatapathError::program("pin", name))?;
        }
        Ok(())
    }

    /// Attaches the XDP program to the uplink in native mode, or updates the link that is pinned under its name.
    pub(super) fn attach_xdp(&mut self, pin: &Path, config: &Config) -> Result<(), DatapathError> {
        let (uplink, _) = interface::interface(&config.uplink)?;
        let program = self.xdp(XDP_PROGRAM)?;
        let fd = program
            .fd()
            .map_err(DatapathError::program("take over", XDP_PROGRAM))?;
        if taken_over(pin, fd.as_fd(), XDP_PROGRAM, uplink.into())? {
            return Ok(());
        }
        let attached = program.attach_to_if_index(uplink, XdpMode::Driver);
        let id = attached.map_err(DatapathError::program("attach", XDP_PROGRAM))?;
        let link = fd_link(XDP_PROGRAM, program.take_link(id))?;
        link.pin(pin)
            .map_err(DatapathError::program("pin", XDP_PROGRAM))?;
        tracing::info!(
            uplink = config.uplink,
            "XDP: the first program is attached; most drivers restart their queues for it, which loses the packets of that moment"
        );
        Ok(())
    }

    /// An XDP program, loaded. Only where it is used: an older kernel may refuse it, and works without.
    pub(super) fn xdp(&mut self, name: &'static str) -> Result<&mut Xdp, DatapathError> {
        let program = self.program_mut(name)?;
        if program.fd().is_err() {
            load(name, program)?;
        }
        match program {
            Program::Xdp(program) => Ok(program),
            _ => Err(DatapathError::Absent { name }),
        }
    }

    /// A packet program (classifier).
    pub(super) fn classifier(
        &mut self,
        name: &'static str,
    ) -> Result<&mut SchedClassifier, DatapathError> {
        match self.program_mut(name)? {
            Program::SchedClassifier(program) => Ok(program),
            _ => Err(DatapathError::Absent { name }),
        }
    }

    /// A program, loaded or not.
    pub(super) fn program(&self, name: &'static str) -> Result<&Program, DatapathError> {
        self.object
            .program(&self.variant(name))
            .ok_or(DatapathError::Absent { name })
    }

    fn program_mut(&mut self, name: &'static str) -> Result<&mut Program, DatapathError> {
        let variant = self.variant(name);
        self.object
            .program_mut(&variant)
            .ok_or(DatapathError::Absent { name })
    }

    /// The program that stands for the one with this name: where packets are logged, another one.
    fn variant(&self, name: &'static str) -> Cow<'static, str> {
        if self.logs && packet_log::PROGRAMS.contains(&name) {
            Cow::Owned(format!("{name}{}", packet_log::SUFFIX))
        } else {
            Cow::Borrowed(name)
        }
    }

    /// The object, for aya-log.
    pub(super) fn object(&mut self) -> &mut Ebpf {
        &mut self.object
    }

    /// A map, for reading.
    pub(super) fn map(&self, name: &'static str) -> Result<&Map, DatapathError> {
        self.object.map(name).ok_or(DatapathError::Absent { name })
    }

    /// The memory-mapped arrays.
    pub(super) fn arrays(&self) -> Result<Arrays, DatapathError> {
        Arrays::of(|name, words| {
            Words::map(self.array(name)?.fd().as_fd(), words)
                .map_err(DatapathError::map("map the memory of", name))
        })
    }

    /// Takes a map out of the object, to own it.
    pub(super) fn take(&mut self, name: &'static str) -> Result<Map, DatapathError> {
        self.object
            .take_map(name)
            .ok_or(DatapathError::Absent { name })
    }

    /// An array, to map it into memory.
    pub(super) fn array(&self, name: &'static str) -> Result<&MapData, DatapathError> {
        match self.map(name)? {
            Map::Array(array) => Ok(array),
            _ => Err(DatapathError::Absent { name }),
        }
    }
}

/// Loads a program. A signal makes the verifier return EAGAIN, and loading is tried again.
fn load(name: &'static str, program: &mut Program) -> Result<(), DatapathError> {
    /// The same number as in libbpf.
    const TRIES: usize = 5;
    let mut tries = 0;
    loop {
        let loaded = match &mut *program {
            Program::SchedClassifier(program) => program.load(),
            Program::CgroupSockAddr(program) => program.load(),
            Program::CgroupSock(program) => program.load(),
            Program::CgroupSkb(program) => program.load(),
            Program::Xdp(program) => program.load(),
            _ => return Err(DatapathError::Absent { name }),
        };
        tries += 1;
        match loaded {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES => {}
            outcome => return outcome.map_err(|error| refused("load", name, Step::Load, error)),
        }
    }
}

/// Updates a pinned link with the new program. A link whose interface or cgroup was deleted, or is not the target, is removed:
/// false.
fn taken_over(
    pin: &Path,
    program: BorrowedFd<'_>,
    name: &'static str,
    target: u64,
) -> Result<bool, DatapathError> {
    let link = match bpf::pinned(pin) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(DatapathError::program("open the link of", name)(error)),
    };
    let attached =
        bpf::attached_to(link.as_fd()).map_err(DatapathError::program("inspect", name))?;
    if attached != target {
        tracing::warn!(
            program = name,
            "the pinned link is attached elsewhere; attaching to --uplink and --cgroup"
        );
        std::fs::remove_file(pin).map_err(DatapathError::program("unpin", name))?;
        return Ok(false);
    }
    match bpf::update_link(link.as_fd(), program) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {
            tracing::warn!(
                program = name,
                "the target of the pinned link was deleted; attaching again"
            );
            std::fs::remove_file(pin).map_err(DatapathError::program("unpin", name))?;
            Ok(false)
        }
        Err(error) => Err(DatapathError::program("update the link of", name)(error)),
    }
}

/// Attaches a program to the uplink or the cgroup. Returns the link, to be pinned.
fn attach(
    program: &mut Program,
    name: &'static str,
    config: &Config,
) -> Result<FdLink, DatapathError> {
    match program {
        Program::SchedClassifier(program) => {
            let side = if name == "tcx_uplink_out" {
                TcAttachType::Egress
            } else {
                TcAttachType::Ingress
            };
            let order = TcAttachOptions::TcxOrder(LinkOrder::default());
            let attached = program.attach_with_options(&config.uplink, side, order);
            let id = attached.map_err(|error| refused("attach", name, Step::AttachTcx, error))?;
            fd_link(name, program.take_link(id))
        }
        Program::CgroupSockAddr(program) => {
            let attached = program.attach(cgroup(&config.cgroup)?, LINK);
            fd_link(name, program.take_link(in_cgroup(name, attached)?))
        }
        Program::CgroupSock(program) => {
            let attached = program.attach(cgroup(&config.cgroup)?, LINK);
            fd_link(name, program.take_link(in_cgroup(name, attached)?))
        }
        Program::CgroupSkb(program) => {
            let side = CgroupSkbAttachType::Egress;
            let attached = program.attach(cgroup(&config.cgroup)?, side, LINK);
            fd_link(name, program.take_link(in_cgroup(name, attached)?))
        }
        _ => Err(DatapathError::Absent { name }),
    }
}

fn in_cgroup<I>(name: &'static str, attached: Result<I, ProgramError>) -> Result<I, DatapathError> {
    attached.map_err(|error| refused("attach", name, Step::AttachCgroup, error))
}

fn fd_link<L>(name: &'static str, link: Result<L, ProgramError>) -> Result<FdLink, DatapathError>
where
    FdLink: TryFrom<L, Error = LinkError>,
{
    let link = link.map_err(DatapathError::program("attach", name))?;
    FdLink::try_from(link).map_err(DatapathError::program("pin", name))
}

fn cgroup(path: &Path) -> Result<File, DatapathError> {
    File::open(path).map_err(|source| DatapathError::Cgroup {
        path: path.to_path_buf(),
        source,
    })
}

/// The error of a refused program: the machine's fault if the kernel check says so, else the program's.
fn refused(
    operation: &'static str,
    program: &'static str,
    step: Step,
    error: ProgramError,
) -> DatapathError {
    let number = match &error {
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error(),
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    match judge(&Findings {
        root: true,
        failed: number.map(|number| (step, number)),
    }) {
        // The verifier also returns EACCES, but with a log.
        Err(unsupported) if !matches!(&error, ProgramError::LoadError { verifier_log, .. } if !verifier_log.to_string().is_empty()) => {
            unsupported.into()
        }
        _ => DatapathError::program(operation, program)(error),
    }
}
