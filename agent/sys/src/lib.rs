//! System calls that no crate offers, network namespaces, and retries for locks that a killed process still holds.
//!
//! The agent's `unsafe` code is here: [`bpf`], memory-mapped arrays ([`words`]), waits ([`readers`], [`readiness`]),
//! [`memory`], the [`clock`], a link's [`driver`], processes that begin in a cgroup ([`spawn`]), a namespace's cookie ([`netns`]), attributes of mounts ([`mounts`]), and filters of
//! system calls ([`seccomp`]).

#![deny(unsafe_code)]

pub mod bpf;
pub mod clock;
pub mod driver;
pub mod memory;
pub mod mounts;
pub mod netns;
pub mod readers;
pub mod readiness;
pub mod retry;
pub mod seccomp;
pub mod spawn;
pub mod words;
