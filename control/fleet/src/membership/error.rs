//! Why a process is no member of its cluster.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use dormouse_trust::Identity;
use dormouse_trust::credentials::CredentialsError;
use dormouse_trust::folder::FolderError;
use dormouse_trust::identity::IdentityError;
use dormouse_trust::token::TokenError;

use super::CLUSTER;
use crate::join::JoinError;

/// Why a process is no member.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The files of an earlier start cannot be used.
    #[error("the certificate in {} cannot be used: remove the folder and join again", folder.display())]
    Kept {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: Box<KeptError>,
    },
    /// Control did not sign, or cannot be reached.
    #[error("cannot join at {address}")]
    Join {
        /// Its address.
        address: SocketAddr,
        /// The cause.
        source: JoinError,
    },
    /// Control signed for another identity.
    #[error(
        "control issued a certificate of {issued}, and this is {wanted}: its token is used up, make another one with `{invitation}`"
    )]
    Issued {
        /// The identity of the certificate.
        issued: Identity,
        /// That of this process.
        wanted: Identity,
        /// The command that makes a line.
        invitation: String,
    },
    /// The signed certificate cannot be used.
    #[error("control issued a certificate that cannot be used")]
    Certificate(#[from] CredentialsError),
    /// The signed certificate has no identity.
    #[error("control issued a certificate that cannot be used")]
    Nameless(#[from] IdentityError),
    /// The folder of the certificate cannot be made: the process has not joined.
    #[error("a certificate could not be kept")]
    Folder(#[source] FolderError),
    /// The files cannot be written.
    #[error(
        "the certificate cannot be kept, and its token is used up: make another one with `{invitation}`"
    )]
    Keep {
        /// The command that makes a line.
        invitation: String,
        /// The cause.
        source: FolderError,
    },
    /// `--join` is neither a line nor a file.
    #[error("--join is neither a line of `dormouse token create` nor the path of a file with one")]
    Line(#[source] io::Error),
    /// The file of `--join` has no line.
    #[error("{path}, of --join")]
    File {
        /// Its path.
        path: String,
        /// The cause.
        source: TokenError,
    },
}

/// Why the files of an earlier start cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// One cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CredentialsError),
    /// The certificate has no identity.
    #[error(transparent)]
    Nameless(#[from] IdentityError),
    /// The certificate is another process'.
    #[error("it is the certificate of {kept}, and this is {wanted}")]
    Other {
        /// The identity of the certificate.
        kept: Identity,
        /// That of this process.
        wanted: Identity,
    },
    /// The addresses of the cluster cannot be read.
    #[error("cannot read {CLUSTER}")]
    Cluster(#[from] io::Error),
    /// The addresses of the cluster are not JSON.
    #[error("{CLUSTER} is damaged")]
    Json(#[from] serde_json::Error),
}

/// Why a certificate is not renewed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenewalError {
    /// Control did not sign, or cannot be reached.
    #[error(transparent)]
    Sign(#[from] JoinError),
    /// The files cannot be written.
    #[error(
        "the renewed certificate is used, and cannot be kept: a restart would find the previous one"
    )]
    Keep(#[from] FolderError),
}
