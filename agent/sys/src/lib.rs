//! System calls that no crate has, network namespaces, and locks that a killed process holds for an instant.
//!
//! The agent's `unsafe` code is here: the calls of [`bpf`], mapped memory ([`words`]), waits ([`readers`], [`readiness`]),
//! [`memory`], and a namespace's number ([`netns`]).

#![deny(unsafe_code)]

pub mod bpf;
pub mod memory;
pub mod netns;
pub mod readers;
pub mod readiness;
pub mod retry;
pub mod words;
