//! The messages of etcd's v3 API, compiled from the .proto files beside this crate's sources.

/// What the store keeps and tells of a key.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests, answers and services.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
