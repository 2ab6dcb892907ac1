//! What the store refuses: what is too large for it, and what it has no room for.

use etcd_client::Error;
use tonic::Code;

use crate::api::Failure;

/// What etcd says of an object above `--max-request-bytes`, and the transport of one above its own limit.
const TOO_LARGE: [&str; 2] = ["request is too large", "message larger than max"];
/// What etcd says when its store is full.
const NO_SPACE: &str = "database space exceeded";

impl Failure {
    /// The failure of a request that the store refused, with the error as text.
    pub(super) fn of_refusal(error: &Error, text: String) -> Self {
        let Error::GRpcStatus(status) = error else {
            return Self::internal(&text);
        };
        if TOO_LARGE
            .iter()
            .any(|words| status.message().contains(words))
        {
            return Self::entity_too_large(&text);
        }
        if status.code() == Code::ResourceExhausted {
            return if status.message().contains(NO_SPACE) {
                Self::full(text)
            } else {
                Self::too_many_requests(text)
            };
        }
        Self::internal(&text)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn an_exhausted_store_is_no_error_of_the_server() {
        for (code, message, want) in [
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                (429, "TooManyRequests"),
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                (429, "TooManyRequests"),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                (413, "RequestEntityTooLarge"),
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max",
                (413, "RequestEntityTooLarge"),
            ),
            (
                Code::DataLoss,
                "etcdserver: corrupt cluster",
                (500, "InternalError"),
            ),
        ] {
            let error = Error::GRpcStatus(Status::new(code, message));
            let status = Failure::of_refusal(&error, message.to_owned()).status();
            let found = (
                status["code"].as_u64().unwrap(),
                status["reason"].as_str().unwrap(),
            );
            assert_eq!(found, want, "{message}");
        }
    }
}
