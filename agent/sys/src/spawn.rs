//! Starts a process inside a cgroup, as the first one of a PID namespace if wanted.
//!
//! A process that moves to another cgroup waits for an RCU grace period, 5 to 18 ms on an idle machine: the kernel has to stop all
//! forks and exits for it. One that begins there waits for nothing (`clone3(2)` with CLONE_INTO_CGROUP, Linux 5.7), and no crate
//! offers that.
#![expect(
    unsafe_code,
    reason = "clone3 has no safe form; each block says why it is sound"
)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, write};

/// `CLONE_CLEAR_SIGHAND` and `CLONE_INTO_CGROUP` (linux/sched.h); as C integers they are cut off.
const FLAGS: u64 = 0x1_0000_0000 | 0x2_0000_0000;

/// `CLONE_NEWPID` (linux/sched.h).
const NEW_PID: u64 = 0x2000_0000;
/// The number of the first of a program's files in the child.
const FIRST_FILE: RawFd = 3;
/// Copies of files have no lower number than this, so there are at most eight.
const COPIES_FROM: RawFd = FIRST_FILE + 8;
/// `CLOSE_RANGE_CLOEXEC` (linux/close_range.h).
const CLOSE_AT_EXEC: u32 = 1 << 2;

/// `struct clone_args` (linux/sched.h), of which only the last field and two others are used.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A program to execute.
#[derive(Debug)]
pub struct Program<'a> {
    /// Path of the executable file.
    pub path: &'a Path,
    /// Its arguments, the first one after its name.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Further files, at most eight, which it takes with [`inherited`].
    pub files: Vec<BorrowedFd<'a>>,
    /// It is the first process of a new PID namespace.
    pub is_first: bool,
}

/// The same in the form that the child needs, which cannot allocate.
struct Image {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    stdio: [OwnedFd; 3],
    files: Vec<OwnedFd>,
    /// The child writes its error to it.
    failed: OwnedFd,
}

/// Starts a program in the cgroup (v2) whose folder this is. Returns the child's pid once it is executed; an error if it cannot be.
pub fn spawn_in(cgroup: BorrowedFd<'_>, program: Program<'_>) -> io::Result<i32> {
    let (failure, failed) = pipe2(OFlag::O_CLOEXEC)?;
    let namespaces = if program.is_first { NEW_PID } else { 0 };
    let image = Image::of(program, &failed)?;
    drop(failed);
    let arguments = pointers(&image.arguments);
    let environment = pointers(&image.environment);
    // No handler of this process may run in the child: it would write to this process's self-pipe.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: the child runs `execute` only, on a copy of this thread's stack.
    let pid = match unsafe { fork_into(cgroup, namespaces) } {
        // SAFETY: this is the child; the arrays end with a null pointer, and what they point to is alive.
        Ok(0) => unsafe { execute(&image, &arguments, &environment) },
        parents => parents,
    };
    before.thread_set_mask()?;
    let pid = pid?;
    drop(image);
    let mut error = [0; 4];
    if File::from(failure).read_exact(&mut error).is_err() {
        // Closed by execve(2).
        return Ok(pid);
    }
    waitpid(Pid::from_raw(pid), None)?;
    Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
}

impl Image {
    fn of(program: Program<'_>, failed: &OwnedFd) -> io::Result<Self> {
        let path = c_string(program.path.as_os_str())?;
        let mut arguments = vec![path.clone()];
        for argument in &program.arguments {
            arguments.push(c_string(argument)?);
        }
        let assignment = |(name, value): (OsString, OsString)| {
            let bytes = [name.into_vec(), value.into_vec()].join(&b'=');
            CString::new(bytes).map_err(io::Error::from)
        };
        let environment = program.environment.into_iter().map(assignment);
        let [input, output, errors] = program.stdio.map(copy);
        let (input, output, errors) = (input?, output?, errors?);
        Ok(Self {
            path,
            arguments,
            environment: environment.collect::<Result<_, _>>()?,
            stdio: [input, output, errors],
            files: program
                .files
                .into_iter()
                .map(copy)
                .collect::<Result<_, _>>()?,
            failed: copy(failed.as_fd())?,
        })
    }
}

/// A copy above the numbers that the child's files get, so that none is overwritten before its turn.
fn copy(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copied = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(COPIES_FROM))?;
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copied) })
}

/// In a program that [`spawn_in`] started: a copy of one of its files, by its place among them. Programs that it executes get none.
pub fn inherited(place: u8) -> io::Result<OwnedFd> {
    // SAFETY: open from the start to the end of the program. Any other number is only an error.
    let file = unsafe { BorrowedFd::borrow_raw(FIRST_FILE + RawFd::from(place)) };
    fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    copy(file)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let all = strings.iter().map(|string| string.as_ptr());
    all.chain([ptr::null()]).collect()
}

/// Returns 0 in the child and the child's pid in the parent.
///
/// # Safety
/// The child may only do what a signal handler may: locks that other threads of the parent hold are never released in it.
unsafe fn fork_into(cgroup: BorrowedFd<'_>, namespaces: u64) -> io::Result<i32> {
    let args = CloneArgs {
        flags: FLAGS | namespaces,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArgs::default()
    };
    // SAFETY: the kernel reads `args`; without a stack and CLONE_VM the child runs on its own copy of this one.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(pid).map_err(io::Error::other)
}

/// Executes the program. On a failure the error goes to the pipe.
///
/// # Safety
/// Only in the child of [`fork_into`]. Both arrays end with a null pointer.
unsafe fn execute(
    image: &Image,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> ! {
    if prepare(&image.stdio)
        .and_then(|()| place(&image.files))
        .is_ok()
    {
        let path = image.path.as_ptr();
        // SAFETY: the caller's promise about the arrays.
        unsafe { libc::execve(path, arguments.as_ptr(), environment.as_ptr()) };
    }
    let error = Errno::last_raw().to_ne_bytes();
    let _ = write(&image.failed, &error);
    // SAFETY: ends this process, without what exit(3) does for the parent's.
    unsafe { libc::_exit(127) }
}

/// Standard input and output, and signals as at the start of a program.
fn prepare([input, output, errors]: &[OwnedFd; 3]) -> nix::Result<()> {
    dup2_stdin(input)?;
    dup2_stdout(output)?;
    dup2_stderr(errors)?;
    // The Rust runtime ignores SIGPIPE, and an ignored signal stays so.
    // SAFETY: no handler is set.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
    SigSet::empty().thread_set_mask()
}

/// The further files, and no others: this process may have been started with some that are not closed by execve(2).
fn place(files: &[OwnedFd]) -> nix::Result<()> {
    let mut free = FIRST_FILE;
    for (file, number) in files.iter().zip(FIRST_FILE..COPIES_FROM) {
        // SAFETY: the number is below those of the copies, and the child uses no other file.
        Errno::result(unsafe { libc::dup2(file.as_raw_fd(), number) })?;
        free = number + 1;
    }
    // SAFETY: closes nothing before execve(2) (Linux 5.11).
    let closed = unsafe { libc::syscall(libc::SYS_close_range, free, u32::MAX, CLOSE_AT_EXEC) };
    Errno::result(closed).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use nix::sys::wait::WaitStatus;

    use super::*;

    /// A cgroup of its own, removed at the end.
    struct Cgroup(PathBuf);

    impl Cgroup {
        fn make(name: &str) -> Self {
            let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
            let is_root = |path: &&PathBuf| path.join("cgroup.procs").exists();
            let root = roots.iter().find(is_root).expect("a cgroup v2");
            let path = root.join(format!("dormouse-spawn-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Cgroup {
        fn drop(&mut self) {
            let _ = fs::remove_dir(&self.0);
        }
    }

    fn spawn(cgroup: &Cgroup, path: &str, script: &str, output: &File) -> io::Result<i32> {
        let folder = File::open(&cgroup.0).unwrap();
        let null = File::open("/dev/null").unwrap();
        let program = Program {
            path: Path::new(path),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("GREETING".into(), "two words".into())],
            stdio: [null.as_fd(), output.as_fd(), output.as_fd()],
            files: vec![folder.as_fd(), null.as_fd()],
            is_first: true,
        };
        spawn_in(folder.as_fd(), program)
    }

    #[test]
    fn a_process_begins_in_its_cgroup_with_its_own_environment_and_signals() {
        let cgroup = Cgroup::make("begins");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        let output = File::create(&path).unwrap();
        let script = "cat /proc/self/cgroup; echo $GREETING $HOME; echo pid $$; readlink /proc/self/fd/3 /proc/self/fd/4; grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 3";
        let pid = spawn(&cgroup, "/bin/sh", script, &output).unwrap();
        let ended = waitpid(Pid::from_raw(pid), None).unwrap();
        assert_eq!(ended, WaitStatus::Exited(Pid::from_raw(pid), 3));
        let text = fs::read_to_string(path).unwrap();
        let name = cgroup.0.file_name().unwrap().to_str().unwrap();
        assert!(text.contains(&format!("/{name}\n")), "{text}");
        assert!(text.contains("\ntwo words\n"), "{text}");
        assert!(text.contains("\npid 1\n"), "{text}");
        let files = format!("\n{}\n/dev/null\n", cgroup.0.display());
        assert!(text.contains(&files), "{text}");
        let mask = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk:"), 0, "{text}");
        assert_eq!(mask("SigIgn:") & 1 << (libc::SIGPIPE - 1), 0, "{text}");
    }

    #[test]
    fn a_missing_program_is_an_error_and_leaves_no_process() {
        let cgroup = Cgroup::make("missing");
        let output = File::create("/dev/null").unwrap();
        let error = spawn(&cgroup, "/no/such/program", "", &output).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let left = fs::read_to_string(cgroup.0.join("cgroup.procs")).unwrap();
        assert_eq!(left, "");
    }
}
