//! The receiving half of a link's driver: its thread, and what it has received.

use std::process::Command;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The CPU that receives.
const RECEIVES: usize = 1;

/// The thread in which a link's driver receives.
pub(crate) struct Receiver {
    link: &'static str,
    thread: i32,
}

/// What was received, and the CPU time for it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) packets: u64,
    pub(crate) cpu: Duration,
}

impl Receiver {
    /// Moves the driver of a link that polls (NAPI) to a thread of its own, on a CPU of its own.
    pub(crate) fn open(link: &'static str) -> Self {
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .unwrap();
        let sys = tempfile::tempdir().unwrap();
        mount(
            None::<&str>,
            sys.path(),
            Some("sysfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        let settings = sys.path().join("class/net").join(link);
        std::fs::write(settings.join("threaded"), "1").unwrap();
        nix::mount::umount(sys.path()).unwrap();
        let thread = thread(link);
        let mut cpus = CpuSet::new();
        cpus.set(RECEIVES).unwrap();
        sched_setaffinity(Pid::from_raw(thread), &cpus).unwrap();
        before_others(thread);
        Self { link, thread }
    }

    /// Since the thread has begun.
    pub(crate) fn read(&self) -> Received {
        let path = format!("/proc/{}/schedstat", self.thread);
        let stat = std::fs::read_to_string(path).unwrap();
        // The first field is the time on a CPU, in nanoseconds (Documentation/scheduler/sched-stats.rst).
        let cpu = stat.split_whitespace().next().unwrap().parse().unwrap();
        Received {
            packets: packets(self.link),
            cpu: Duration::from_nanos(cpu),
        }
    }

    /// Since an earlier reading, once all packets are handled.
    pub(crate) fn since(&self, before: &Received) -> Received {
        let mut now = self.read();
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let next = self.read();
            if next.packets == now.packets {
                return Received {
                    packets: next.packets - before.packets,
                    cpu: next.cpu.saturating_sub(before.cpu),
                };
            }
            now = next;
        }
    }
}

/// Lets a thread run before the machine's other load.
pub(crate) fn before_others(thread: i32) {
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", "10", &thread.to_string()]);
    assert!(chrt.status().unwrap().success());
}

/// The kernel's thread that receives for a link.
fn thread(link: &str) -> i32 {
    let name = format!("napi/{link}-");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut found = processes.filter_map(|process| {
        let comm = std::fs::read_to_string(process.path().join("comm")).ok()?;
        let thread: i32 = process.file_name().to_str()?.parse().ok()?;
        comm.starts_with(&name).then_some(thread)
    });
    found.next().unwrap()
}

/// Packets that a link's driver has received.
fn packets(link: &str) -> u64 {
    let shown = Command::new("ethtool").args(["-S", link]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains("xdp_packets"));
    let counts = lines.filter_map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok());
    counts.sum()
}

/// A link's own address.
pub(crate) fn mac(link: &str) -> [u8; 6] {
    let mut interfaces = nix::ifaddrs::getifaddrs().unwrap();
    let found = interfaces.find_map(|interface| {
        let address = interface.address?.as_link_addr()?.addr()?;
        (interface.interface_name == link).then_some(address)
    });
    found.unwrap()
}
