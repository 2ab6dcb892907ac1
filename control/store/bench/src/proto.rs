//! etcd's messages, the client of the load and the services of the no-op server, compiled from the store's .proto files.

#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod etcd {
    include!(concat!(env!("OUT_DIR"), "/etcd.rs"));
}

pub(crate) use etcd::{etcdserverpb::*, mvccpb::KeyValue};
