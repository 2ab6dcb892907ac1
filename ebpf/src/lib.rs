//! The code that kernel programs and the agent share: map layouts, packet parsing, and load balancing decisions.
//!
//! Everything here is pure, `no_std` where it runs in the kernel, and tested on the host. Reading order: slots
//! ([`service`]), the decision ([`decide`], for sockets [`socket`]) and the backend selection ([`pick`]), packet parsing ([`packet`]) and changes
//! ([`checksum`], [`ndp`], [`neighbors`], [`pod_link`], [`reject`]), connection tracking ([`flow`], [`stage`], [`opening`], [`steady`]), statistics ([`counts`], [`load`], [`verdict`]),
//! limits ([`wake_limit`], [`budget`], [`deny`], [`screen`]), the other maps ([`maps`], [`config`]), traces ([`trace`], [`traced`]),
//! and the log of packets ([`packet_filter`], [`packet_log`]).

#![cfg_attr(target_arch = "bpf", no_std)]

pub mod budget;
pub mod checksum;
pub mod config;
pub mod counts;
pub mod decide;
pub mod deny;
pub mod flow;
pub mod found;
pub mod load;
pub mod maps;
pub mod ndp;
pub mod neighbors;
pub mod next_hop;
pub mod opening;
pub mod packet;
pub mod packet_filter;
pub mod packet_log;
pub mod pick;
pub mod pod_link;
pub mod reject;
pub mod screen;
pub mod service;
pub mod socket;
pub mod stage;
pub mod steady;
pub mod tables;
pub mod trace;
pub mod traced;
pub mod verdict;
pub mod wake_limit;
