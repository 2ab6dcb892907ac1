//! A process that counts as kube-proxy: any that has its name does, on the whole machine. So one test at a time may have one.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// No other test has a kube-proxy meanwhile.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process; ends when dropped.
pub(crate) struct KubeProxy(Child);

impl KubeProxy {
    /// Starts it, with its program in this folder. The caller has the turn.
    pub(crate) fn start(folder: &Path) -> Self {
        let program = folder.join("kube-proxy");
        symlink("/bin/sleep", &program).unwrap();
        let mut command = Command::new(&program);
        Self(command.arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for KubeProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
