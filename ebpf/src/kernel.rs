//! The kernel half: maps, and the operations of the programs on packets and sockets.

pub(crate) mod apply_flow;
pub(crate) mod atomic;
pub(crate) mod connect;
pub(crate) mod count;
pub(crate) mod datagrams;
pub(crate) mod egress;
pub(crate) mod env;
pub(crate) mod established;
pub(crate) mod fib_forward;
pub(crate) mod fragments;
pub(crate) mod icmp_errors;
pub(crate) mod load;
pub(crate) mod nat;
pub(crate) mod ndp;
pub(crate) mod new_flow;
pub(crate) mod reject;
pub(crate) mod rendezvous;
pub(crate) mod rewrite;
pub(crate) mod skb;
pub(crate) mod socket;
pub(crate) mod socket_storage;
pub(crate) mod stale_backend;
pub(crate) mod tables;
pub(crate) mod trace;
pub(crate) mod transmit;
pub(crate) mod wake;
