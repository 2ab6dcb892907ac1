//! Identities and certificates of the cluster: its certificate authority, the short-lived certificates of nodes, roles and users, the TLS of
//! listeners and of their clients, and join tokens.
//!
//! Reading order: [`identity`], [`validity`], [`credentials`] (a certificate with its key), [`authority`], [`current`] (a certificate that is
//! renewed), [`server`] and [`client`] (TLS), [`diagnosis`] (the reason of a failed handshake), [`token`] and [`guesses`] (joining), [`revocations`], [`folder`]
//! (files), [`files`] (a server's certificate that others renew). All but the last two are pure: the time is an argument.

#![forbid(unsafe_code)]

pub mod authority;
pub mod client;
pub mod credentials;
pub mod current;
pub mod diagnosis;
pub mod files;
pub mod folder;
pub mod guesses;
mod hash;
pub mod identity;
pub mod revocations;
pub mod server;
pub mod token;
pub mod validity;

pub use authority::Authority;
pub use credentials::Credentials;
pub use current::Current;
pub use files::{CertificateFiles, FileCertificate};
pub use hash::AuthorityHash;
pub use identity::Identity;
pub use revocations::Revocations;
pub use server::{Client, Clients};
pub use token::{JoinLine, Token};
pub use validity::Validity;
