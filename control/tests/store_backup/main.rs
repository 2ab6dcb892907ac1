//! Backups as an operator makes and restores them: `etcdctl snapshot save` and `status`, `dormouse store restore` and
//! `export`, and the way to etcd and back where etcd is installed.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed command fails the test; what is skipped is printed"
)]

mod commands;
mod etcd;
mod export;
mod restore;
