//! Downgrade requests: the store has one version of its API, so that none is a valid target.

use semver::Version;
use tonic::{Code, Status};

use crate::proto::etcdserverpb::{DowngradeRequest, downgrade_request::DowngradeAction};

/// Checks a request. Only a cancellation passes: as in etcd, one without a downgrade in progress
/// succeeds.
pub(super) fn check(request: &DowngradeRequest) -> Result<(), Status> {
    match DowngradeAction::try_from(request.action) {
        Ok(DowngradeAction::Cancel) => Ok(()),
        Ok(DowngradeAction::Validate | DowngradeAction::Enable) => Err(refusal(&request.version)),
        Err(_unknown) => Err(Status::new(Code::Unknown, "etcdserver: unknown method")),
    }
}

fn refusal(target: &str) -> Status {
    let text = if is_version(target) {
        "etcdserver: invalid downgrade target version"
    } else {
        "etcdserver: wrong downgrade target version format"
    };
    Status::new(Code::InvalidArgument, text)
}

/// Whether the text is a version with or without a patch number.
fn is_version(text: &str) -> bool {
    Version::parse(text).is_ok() || Version::parse(&format!("{text}.0")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_refused_by_its_format_or_as_a_version() {
        for version in ["3.5", "3.6.0", "3.7", "0.0"] {
            assert!(refusal(version).message().contains("invalid"), "{version}");
        }
        for text in ["", "x", "3", "3.", ".5", "3.5.0.0", "3.5 ", "-3.5"] {
            assert!(refusal(text).message().contains("format"), "{text}");
        }
    }
}
