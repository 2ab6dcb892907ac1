//! Grace periods for BPF programs.
#![expect(unsafe_code, reason = "membarrier(2) has no safe form")]

use std::time::Duration;

/// Returns when every program that was running has ended, so none uses a word that it read before.
pub fn wait_for_readers() {
    /// Fallback for kernels that refuse the call (`nohz_full`): far longer than any of these programs runs.
    const INSTEAD: Duration = Duration::from_millis(100);
    let global: libc::c_long = 1; // MEMBARRIER_CMD_GLOBAL: synchronize_rcu()
    // SAFETY: takes numbers only.
    if unsafe { libc::syscall(libc::SYS_membarrier, global, 0, 0) } != 0 {
        std::thread::sleep(INSTEAD);
    }
}
