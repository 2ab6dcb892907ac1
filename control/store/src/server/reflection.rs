//! gRPC health and reflection: the standard services by which probes and generic clients work.

use tonic::service::RoutesBuilder;
use tonic_reflection::server::{Builder, Error};

use crate::proto::DESCRIPTORS;

/// Adds `grpc.health.v1` (serving as long as the server runs) and both versions of reflection.
pub(super) fn add(routes: &mut RoutesBuilder) -> Result<(), Error> {
    let (_reporter, health) = tonic_health::server::health_reporter();
    routes.add_service(health);
    routes.add_service(reflection().build_v1()?);
    routes.add_service(reflection().build_v1alpha()?);
    Ok(())
}

fn reflection() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
