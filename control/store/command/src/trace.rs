//! `--trace`: each request and response as a line of JSON.

mod json;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::SystemTime,
};

use dormouse_store::{
    proto::DESCRIPTORS,
    server::{Part, Trace},
};
use parking_lot::Mutex;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use tonic::Code;
use tracing::error;

/// Opens a trace that appends to a file. A line has `time` (seconds since 1970), `call` (its number),
/// `rpc` (such as `KV/Put`) and one of `req`, `res` and `err`.
pub(crate) fn open(path: &Path) -> io::Result<Trace> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(io::Error::other)?;
    let lines = Lines {
        file: Mutex::new(file),
        pool,
    };
    Ok(Trace::new(move |call, path, part| {
        lines.part(call, path, &part);
    }))
}

struct Lines {
    file: Mutex<File>,
    pool: DescriptorPool,
}

impl Lines {
    fn part(&self, call: u64, path: &str, part: &Part<'_>) {
        // Health and reflection have no messages of etcd's API.
        let Some(method) = method(&self.pool, path) else {
            return;
        };
        let Some((name, value)) = describe(&method, part) else {
            return;
        };
        let mut line = json!({
            "time": seconds(),
            "call": call,
            "rpc": format!("{}/{}", method.parent_service().name(), method.name()),
        });
        line[name] = value;
        // One write for each line: a crash leaves whole ones.
        let written = self.file.lock().write_all(format!("{line}\n").as_bytes());
        if let Err(cause) = written {
            error!(%cause, "failed to write a line of the trace");
        }
    }
}

fn method(pool: &DescriptorPool, path: &str) -> Option<MethodDescriptor> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let service = pool.get_service_by_name(service)?;
    service.methods().find(|method| method.name() == name)
}

/// The name of a part in its line, and the part. A call that succeeds ends without a line.
fn describe(method: &MethodDescriptor, part: &Part<'_>) -> Option<(&'static str, Value)> {
    match *part {
        Part::Request(bytes) => Some(("req", message(method.input(), bytes))),
        Part::Response(bytes) => Some(("res", message(method.output(), bytes))),
        Part::Status(Code::Ok, _) => None,
        Part::Status(code, text) => {
            Some(("err", json!({"code": format!("{code:?}"), "message": text})))
        }
    }
}

fn message(descriptor: MessageDescriptor, bytes: &[u8]) -> Value {
    match DynamicMessage::decode(descriptor, bytes) {
        Ok(message) => json::message(&message),
        Err(error) => json!({"malformed": error.to_string()}),
    }
}

fn seconds() -> f64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    elapsed.map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use dormouse_store::proto::etcdserverpb::{AuthenticateRequest, PutRequest};
    use prost_reflect::prost::Message;

    use super::*;

    fn described(path: &str, part: &Part<'_>) -> Option<(&'static str, Value)> {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        describe(&method(&pool, path)?, part)
    }

    #[test]
    fn a_request_is_described_by_its_fields() {
        let request = PutRequest {
            key: "a\0".into(),
            value: "1%".into(),
            lease: 7,
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        let expected = json!({"key": "a%00", "value": "1%25", "lease": 7});
        let path = "/etcdserverpb.KV/Put";
        assert_eq!(
            described(path, &Part::Request(&bytes)),
            Some(("req", expected))
        );
    }

    #[test]
    fn passwords_are_left_out() {
        let request = AuthenticateRequest {
            name: "bob".into(),
            password: "secret".into(),
        };
        let bytes = request.encode_to_vec();
        let path = "/etcdserverpb.Auth/Authenticate";
        let expected = json!({"name": "bob", "password": "~"});
        assert_eq!(
            described(path, &Part::Request(&bytes)),
            Some(("req", expected))
        );
    }

    #[test]
    fn errors_and_malformed_messages_have_a_line_and_success_has_none() {
        let path = "/etcdserverpb.KV/Put";
        let status = Part::Status(Code::NotFound, "no lease");
        let expected = json!({"code": "NotFound", "message": "no lease"});
        assert_eq!(described(path, &status), Some(("err", expected)));
        assert_eq!(described(path, &Part::Status(Code::Ok, "")), None);
        let (_, malformed) = described(path, &Part::Request(b"\xff")).unwrap();
        assert!(malformed["malformed"].is_string());
        assert_eq!(described("/metrics", &Part::Request(b"")), None);
    }
}
