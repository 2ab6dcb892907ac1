//! bpf(2) commands that aya does not offer: link updates, small programs and maps, batch lookups, removal with the value.
#![expect(
    unsafe_code,
    reason = "bpf(2) has no safe form; each block says why it is sound"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const BPF_OBJ_GET: libc::c_long = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_UPDATE: libc::c_long = 29;

/// The argument of BPF_OBJ_GET; the kernel ignores the rest of the union.
#[repr(C)]
#[derive(Default)]
struct ObjGet {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// The argument of BPF_LINK_UPDATE.
#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// The argument of BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// The beginning of `struct bpf_link_info`, which all kernels with links have.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    /// The cgroup's id, or the ifindex with the next field.
    target: [u32; 2],
}

/// The target of a link: the cgroup's id, or the ifindex; 0 if the interface was deleted.
pub fn attached_to(link: BorrowedFd<'_>) -> io::Result<u64> {
    const BPF_LINK_TYPE_CGROUP: u32 = 3;
    let mut info = LinkInfo::default();
    let mut argument = GetInfo {
        bpf_fd: link.as_raw_fd().cast_unsigned(),
        info_len: u32::try_from(size_of::<LinkInfo>()).map_err(io::Error::other)?,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut argument)?;
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
pub fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut argument = ObjGet {
        pathname: name.as_ptr() as u64,
        ..ObjGet::default()
    };
    let fd = bpf(BPF_OBJ_GET, &mut argument)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Replaces a link's program atomically: every packet meets the old or the new one.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut argument = LinkUpdate {
        link_fd: link.as_raw_fd().cast_unsigned(),
        new_prog_fd: program.as_raw_fd().cast_unsigned(),
        ..LinkUpdate::default()
    };
    bpf(BPF_LINK_UPDATE, &mut argument).map(drop)
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;

/// The argument of BPF_MAP_CREATE; fields of newer kernels are 0.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// The argument of BPF_PROG_LOAD; fields of newer kernels are 0.
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

/// Creates an array of one word with value 0. It exists while its descriptor or a program that uses it does.
pub fn new_word() -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    let mut argument = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
    };
    let fd = bpf(BPF_MAP_CREATE, &mut argument)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a classifier from BPF instructions, which the verifier checks.
pub fn load_classifier(instructions: &[u64]) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    let mut argument = ProgLoad {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        insns: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        prog_name: *b"dormouse_limit\0\0",
        ..ProgLoad::default()
    };
    let fd = bpf(BPF_PROG_LOAD, &mut argument)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;

/// The argument of BPF_MAP_LOOKUP_BATCH. The kernel writes `count`.
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

/// Reads the next entries of a hash map by whole buckets, so that a walk ends however many writes happen meanwhile. Fills both
/// slices from the beginning, returns the number of entries, and advances `cursor`, which is `None` before and after a walk.
pub fn lookup_batch<K: aya::Pod, V: aya::Pod>(
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
    // The pointers are to live memory: `count` keys and values of the map's sizes, which the callers' types give and which
    // are valid for every bit pattern, and one word for each cursor.
    let read = bpf(BPF_MAP_LOOKUP_BATCH, &mut argument);
    *cursor = Some(next);
    if let Err(error) = read {
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
        *cursor = None;
    }
    Ok(argument.count as usize)
}

const BPF_MAP_LOOKUP_AND_DELETE_ELEM: libc::c_long = 21;

/// The argument of BPF_MAP_LOOKUP_AND_DELETE_ELEM. The kernel writes the value.
#[repr(C)]
struct Element {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Removes an entry of a hash map, and returns the value that it had at that moment. No entry: `NotFound`.
pub fn take<K: aya::Pod, V: aya::Pod + Default>(map: BorrowedFd<'_>, key: &K) -> io::Result<V> {
    let mut value = V::default();
    let mut argument = Element {
        map_fd: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: std::ptr::from_ref(key) as u64,
        value: (&raw mut value) as u64,
        flags: 0,
    };
    // The pointers are to live memory: a key and a value of the map's sizes, which the callers' types give; the value is valid
    // for every bit pattern.
    bpf(BPF_MAP_LOOKUP_AND_DELETE_ELEM, &mut argument)?;
    Ok(value)
}

/// Calls bpf(2). Addresses in the argument are of memory that lives as long as the call, and that the kernel may write if
/// the command does.
fn bpf<T>(command: libc::c_long, argument: &mut T) -> io::Result<RawFd> {
    // SAFETY: an exclusive pointer to an argument of this command, and its size: the kernel reads and writes no more of it.
    // The callers, all in this file, pass addresses as above.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(argument),
            size_of::<T>(),
        )
    };
    match RawFd::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}
