//! What the programs share: maps, and what is done to packets and sockets.

pub(crate) mod atomic;
pub(crate) mod begin;
pub(crate) mod behind;
pub(crate) mod connect;
pub(crate) mod count;
pub(crate) mod datagrams;
pub(crate) mod errors;
pub(crate) mod favourite;
pub(crate) mod follow;
pub(crate) mod fragments;
pub(crate) mod leaving;
pub(crate) mod load;
pub(crate) mod nat;
pub(crate) mod ndp;
pub(crate) mod refuse;
pub(crate) mod rewrite;
pub(crate) mod send;
pub(crate) mod shortcut;
pub(crate) mod skb;
pub(crate) mod socket;
pub(crate) mod stale;
pub(crate) mod standing;
pub(crate) mod tables;
pub(crate) mod trace;
pub(crate) mod wake;
