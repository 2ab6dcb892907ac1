//! What the programs in the kernel and the agent share: map layouts, packets, and the decisions over them.
//!
//! Everything here is pure, `no_std` where it runs in the kernel, and tested on the host. Reading order: what a VIP's
//! entry says ([`service`]), who stands behind it ([`pick`]), how packets are read ([`packet`]) and changed
//! ([`checksum`], [`ndp`]), what is remembered of connections ([`flow`], [`counts`]) and of
//! backends ([`load`]), the other maps ([`maps`]), and how a decision
//! is explained ([`trace`]).

#![cfg_attr(target_arch = "bpf", no_std)]

pub mod checksum;
pub mod config;
pub mod counts;
pub mod decide;
pub mod flow;
pub mod load;
pub mod maps;
pub mod ndp;
pub mod packet;
pub mod pick;
pub mod refuse;
pub mod service;
pub mod tables;
pub mod trace;
pub mod verdict;
