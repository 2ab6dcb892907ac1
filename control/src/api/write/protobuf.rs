//! The options that typed clients of Kubernetes send as protobuf: `DeleteOptions`, and those in an `Eviction`
//! (k8s.io/apimachinery and k8s.io/api/policy/v1, generated.proto).

use prost::Message;

use super::{DeleteOptions, Preconditions};
use crate::api::Failure;

/// The begin of every body of this form.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Options {
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Conditions>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Conditions {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Eviction {
    #[prost(message, optional, tag = "2")]
    delete_options: Option<Options>,
}

/// The options of a delete request.
pub(super) fn delete_options(body: &[u8]) -> Result<DeleteOptions, Failure> {
    decoded::<Options>(body).map(of)
}

/// The options of an eviction.
pub(super) fn eviction(body: &[u8]) -> Result<DeleteOptions, Failure> {
    let eviction = decoded::<Eviction>(body)?;
    Ok(of(eviction.delete_options.unwrap_or_default()))
}

fn of(options: Options) -> DeleteOptions {
    let preconditions = options.preconditions.unwrap_or_default();
    DeleteOptions {
        preconditions: Preconditions {
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
        },
        dry_run: options.dry_run,
    }
}

fn decoded<M: Message + Default>(body: &[u8]) -> Result<M, Failure> {
    let message = body.strip_prefix(MAGIC).ok_or("it does not begin with k8s");
    let message = message.map_err(str::to_owned).and_then(|message| {
        let envelope = Unknown::decode(message).map_err(|error| error.to_string())?;
        M::decode(envelope.raw.as_slice()).map_err(|error| error.to_string())
    });
    message
        .map_err(|error| Failure::bad_request(format!("cannot decode the protobuf body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(message: &impl Message) -> Vec<u8> {
        let envelope = Unknown {
            raw: message.encode_to_vec(),
        };
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    #[test]
    fn options_are_decoded_alone_and_in_an_eviction() {
        let options = Options {
            preconditions: Some(Conditions {
                uid: Some("u1".into()),
                resource_version: None,
            }),
            dry_run: vec!["All".into()],
        };
        let want = DeleteOptions {
            preconditions: Preconditions {
                uid: Some("u1".into()),
                resource_version: None,
            },
            dry_run: vec!["All".into()],
        };
        assert_eq!(delete_options(&body(&options)).unwrap(), want);
        let delete_options = Some(options);
        assert_eq!(eviction(&body(&Eviction { delete_options })).unwrap(), want);
        assert!(super::delete_options(b"{}").is_err());
        assert!(super::delete_options(b"k8s\0\xff").is_err());
    }
}
