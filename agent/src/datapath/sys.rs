//! What aya has no call for: memory-mapped arrays, links that change their program, and waiting for readers.
//!
//! The only file of the agent with `unsafe` code.
#![expect(
    unsafe_code,
    reason = "mmap and bpf(2) have no safe form; each block says why it is sound"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A map's memory as words, shared with the kernel's programs.
#[derive(Debug)]
pub(super) struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and is only reached through atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the first `len` words of an array that was made with BPF_F_MMAPABLE.
    pub(super) fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Self::mmap(len, libc::MAP_SHARED, access, fd.as_raw_fd())
    }

    /// Maps them for a reader: a store would end the process.
    pub(super) fn view(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::mmap(len, libc::MAP_SHARED, libc::PROT_READ, fd.as_raw_fd())
    }

    /// Memory of the same kind that no kernel reads.
    #[cfg(test)]
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Self::mmap(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, access, -1)
    }

    fn mmap(len: usize, flags: i32, access: i32, fd: RawFd) -> io::Result<Self> {
        // SAFETY: a new mapping, at a place that the kernel chooses, touches no memory in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<u64>(),
                access,
                flags,
                fd,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, len })
    }

    /// The word in a place; `None` past the end.
    pub(super) fn load(&self, place: usize) -> Option<u64> {
        self.word(place).map(|word| word.load(Ordering::Acquire))
    }

    /// Replaces a word in one store, after all that this thread stored before. A place past the end is left alone.
    pub(super) fn store(&self, place: usize, value: u64) {
        if let Some(word) = self.word(place) {
            word.store(value, Ordering::Release);
        }
    }

    /// Adds to a word that programs add to as well. A place past the end is left alone.
    pub(super) fn add(&self, place: usize, by: u64) {
        if let Some(word) = self.word(place) {
            word.fetch_add(by, Ordering::AcqRel);
        }
    }

    /// Sets bits of a word that programs set bits of as well. A place past the end is left alone.
    pub(super) fn set(&self, place: usize, bits: u64) {
        if let Some(word) = self.word(place) {
            word.fetch_or(bits, Ordering::AcqRel);
        }
    }

    fn word(&self, place: usize) -> Option<&AtomicU64> {
        if place >= self.len {
            return None;
        }
        // SAFETY: inside the mapping, which is one allocation.
        let word = unsafe { self.start.add(place) };
        // SAFETY: page-aligned, so each word is aligned; lives as long as `self`; only reached through atomics.
        Some(unsafe { word.as_ref() })
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping that `mmap` made, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<u64>()) };
    }
}

/// A descriptor to wait on until it can be read.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by what watches it: it stays open, and the same, as long as it is watched.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}

/// Gives memory that is free back to the machine: the allocator by itself keeps all that it ever had.
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The number of the network namespace that this process is in, as programs in the kernel see it.
pub(super) fn netns_cookie() -> io::Result<u64> {
    /// `SO_NETNS_COOKIE` (asm-generic/socket.h), Linux 5.14.
    const NETNS_COOKIE: i32 = 71;
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet6,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let mut cookie = 0_u64;
    let mut len = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the kernel fills the eight bytes of `cookie` and no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}

const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_UPDATE: libc::c_long = 29;

/// bpf(2)'s argument for a pinned object; the rest of the union is not looked at.
#[repr(C)]
#[derive(Default)]
struct ObjGet {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// bpf(2)'s argument for a link that changes its program.
#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// bpf(2)'s argument for what is known of an object.
#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// What is known of a link (`struct bpf_link_info`): the begin that all kernels with links have.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    /// A cgroup's id, or an interface's index with what follows it.
    target: [u32; 2],
}

/// What a link is attached to: a cgroup by its id, an interface by its index, 0 when that is gone.
pub(super) fn attached_to(link: BorrowedFd<'_>) -> io::Result<u64> {
    const BPF_LINK_TYPE_CGROUP: u32 = 3;
    let mut info = LinkInfo::default();
    let argument = GetInfo {
        bpf_fd: link.as_raw_fd().cast_unsigned(),
        info_len: u32::try_from(size_of::<LinkInfo>()).map_err(io::Error::other)?,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &argument)?;
    let [low, high] = info.target.map(u64::from);
    Ok(if info.kind == BPF_LINK_TYPE_CGROUP {
        let [low, high] = if cfg!(target_endian = "big") {
            [high, low]
        } else {
            [low, high]
        };
        high << 32 | low
    } else {
        low
    })
}

/// Opens a pinned link.
pub(super) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let argument = ObjGet {
        pathname: name.as_ptr() as u64,
        ..ObjGet::default()
    };
    let fd = bpf(BPF_OBJ_GET, &argument)?;
    // SAFETY: a descriptor that the kernel just gave to us, and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives a link another program in one step: every packet meets the one or the other.
pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let argument = LinkUpdate {
        link_fd: link.as_raw_fd().cast_unsigned(),
        new_prog_fd: program.as_raw_fd().cast_unsigned(),
        ..LinkUpdate::default()
    };
    bpf(BPF_LINK_UPDATE, &argument).map(drop)
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;

/// bpf(2)'s argument for a new map; what a newer kernel knows more of is 0.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// bpf(2)'s argument for a new program; what a newer kernel knows more of is 0.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// An array of one word, which is 0. It goes with its descriptor and the last program that uses it.
pub(crate) fn new_word() -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    let argument = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
    };
    let fd = bpf(BPF_MAP_CREATE, &argument)?;
    // SAFETY: a descriptor that the kernel just gave to us, and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a classifier from the kernel's instructions, which its verifier judges.
pub(crate) fn load_classifier(instructions: &[u64]) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    let argument = ProgLoad {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        insns: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        prog_name: *b"dormouse_limit\0\0",
        ..ProgLoad::default()
    };
    let fd = bpf(BPF_PROG_LOAD, &argument)?;
    // SAFETY: a descriptor that the kernel just gave to us, and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;

/// bpf(2)'s argument for many entries at once. The kernel writes `count`.
#[repr(C)]
struct Batch {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Reads the next entries of a hash map, bucket by bucket, so that a walk ends however much is written meanwhile: fills
/// both slices from their begin, says with how many, and moves `cursor` on, which begins and ends as `None`.
pub(super) fn lookup_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    cursor: &mut Option<u32>,
    (keys, values): (&mut [K], &mut [V]),
) -> io::Result<usize> {
    let from = *cursor;
    let mut next = 0_u32;
    let mut argument = Batch {
        from: from
            .as_ref()
            .map_or(0, |from| std::ptr::from_ref(from) as u64),
        next: (&raw mut next) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: u32::try_from(keys.len().min(values.len())).map_err(io::Error::other)?,
        map_fd: map.as_raw_fd().cast_unsigned(),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: all pointers are to live memory: `count` keys and values of the map's sizes, which the callers' types give
    // and which are valid for every bit pattern, and one word for each cursor.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_LOOKUP_BATCH,
            &raw mut argument,
            size_of::<Batch>(),
        )
    };
    *cursor = Some(next);
    if result < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
        *cursor = None;
    }
    Ok(argument.count as usize)
}

fn bpf<T>(command: libc::c_long, argument: &T) -> io::Result<RawFd> {
    // SAFETY: a pointer to a live argument of this command, and its size: the kernel reads no more.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(argument),
            size_of::<T>(),
        )
    };
    match RawFd::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns when every program that was running has ended: after it, nobody holds a word read before.
pub(super) fn wait_for_readers() {
    /// Far longer than any program of ours runs; for kernels that refuse the call (`nohz_full`).
    const INSTEAD: Duration = Duration::from_millis(100);
    let global: libc::c_long = 1; // MEMBARRIER_CMD_GLOBAL: synchronize_rcu()
    // SAFETY: takes numbers only.
    if unsafe { libc::syscall(libc::SYS_membarrier, global, 0, 0) } != 0 {
        std::thread::sleep(INSTEAD);
    }
}

/// CLOCK_BOOTTIME in nanoseconds: the clock of all that crosses the kernel's border.
pub(super) fn boottime_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
        u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
    })
}
