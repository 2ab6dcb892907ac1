//! The messages of etcd's v3 API, compiled from the .proto files of this crate.

/// The descriptors of all messages and services, as protoc encodes them.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("etcd");

/// Requests, responses and services.
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

/// Users, roles and permissions.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// etcd's Lock service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// etcd's Election service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
