//! Memory-mapped BPF arrays: words that the agent and the BPF programs share.
#![expect(
    unsafe_code,
    reason = "mmap has no safe form; each block says why it is sound"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A map's memory as 64-bit words.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and is only reached through atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the first `len` words of an array that was created with BPF_F_MMAPABLE.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Self::mmap(len, libc::MAP_SHARED, access, fd.as_raw_fd())
    }

    /// Maps them read-only: a store would raise SIGSEGV.
    pub fn view(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::mmap(len, libc::MAP_SHARED, libc::PROT_READ, fd.as_raw_fd())
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
        // Children execute other programs: copying the page tables of large maps for them takes longer than all else of a fork.
        // SAFETY: the mapping made above; it stays as it is in this process.
        unsafe { libc::madvise(start, len * size_of::<u64>(), libc::MADV_DONTFORK) };
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, len })
    }

    /// The word with this index; `None` beyond the end.
    pub fn load(&self, place: usize) -> Option<u64> {
        self.word(place).map(|word| word.load(Ordering::Acquire))
    }

    /// Replaces a word in one store, with release ordering. An index beyond the end is ignored.
    pub fn store(&self, place: usize, value: u64) {
        if let Some(word) = self.word(place) {
            word.store(value, Ordering::Release);
        }
    }

    /// Atomically adds to a word, which programs may add to as well. An index beyond the end is ignored.
    pub fn add(&self, place: usize, by: u64) {
        if let Some(word) = self.word(place) {
            word.fetch_add(by, Ordering::AcqRel);
        }
    }

    /// Atomically sets bits of a word, which programs may change as well. An index beyond the end is ignored.
    pub fn set(&self, place: usize, bits: u64) {
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
