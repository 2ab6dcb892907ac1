//! Conversion between messages and the JSON of the vectors, by the descriptors of the .proto files.

use std::{collections::HashMap, sync::LazyLock};

use dormouse_store::proto::DESCRIPTORS;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, ReflectMessage, Value as Field,
};
use serde_json::{Map, Value, json};

use crate::json::{escape, unescape};

/// Values that the server chose (such as lease IDs), by their name in the vectors.
pub(crate) type Vars = HashMap<String, Value>;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap());

/// Packages of etcd's services.
const PACKAGES: [&str; 3] = ["etcdserverpb", "v3lockpb", "v3electionpb"];

/// The descriptor of a method such as `KV/Put`; `None` if the .proto files lack it.
pub(crate) fn method(rpc: &str) -> Option<MethodDescriptor> {
    let (service, name) = rpc.split_once('/').unwrap();
    let mut services = PACKAGES
        .iter()
        .filter_map(|package| POOL.get_service_by_name(&format!("{package}.{service}")));
    let service = services.next()?;
    service.methods().find(|method| method.name() == name)
}

pub(crate) fn encode(value: &Value, descriptor: &MessageDescriptor, vars: &Vars) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in value.as_object().unwrap() {
        let field = descriptor.get_field_by_name(name).unwrap_or_else(|| {
            panic!("{} has no field {name}", descriptor.full_name());
        });
        let value = match value {
            Value::Array(items) => Field::List(
                items
                    .iter()
                    .map(|item| encode_one(item, &field, vars))
                    .collect(),
            ),
            one => encode_one(one, &field, vars),
        };
        message.set_field(&field, value);
    }
    message
}

fn encode_one(value: &Value, field: &FieldDescriptor, vars: &Vars) -> Field {
    let named = value.as_str().filter(|text| text.starts_with('$'));
    let value = named.map_or(value, |name| &vars[&name[1..]]);
    match field.kind() {
        Kind::Message(descriptor) => Field::Message(encode(value, &descriptor, vars)),
        Kind::Enum(descriptor) => Field::EnumNumber(match value {
            Value::String(name) => descriptor.get_value_by_name(name).unwrap().number(),
            number => i32::try_from(number.as_i64().unwrap()).unwrap(),
        }),
        Kind::Bytes => Field::Bytes(unescape(value).into()),
        Kind::String => Field::String(value.as_str().unwrap().into()),
        Kind::Bool => Field::Bool(value.as_bool().unwrap()),
        Kind::Int64 => Field::I64(value.as_i64().unwrap()),
        Kind::Uint64 => Field::U64(value.as_u64().unwrap()),
        Kind::Uint32 => Field::U32(value.as_u64().unwrap().try_into().unwrap()),
        kind => panic!("no field of kind {kind:?} is known"),
    }
}

/// A message as JSON. The storage version is left out: etcd sends it only seconds after its start.
pub(crate) fn decode(message: &DynamicMessage) -> Value {
    let mut object = Map::new();
    for (field, value) in message.fields() {
        if field.name() == "storageVersion" {
            continue;
        }
        let value = match value {
            Field::List(items) => items.iter().map(|item| decode_one(item, &field)).collect(),
            one => decode_one(one, &field),
        };
        object.insert(field.name().into(), value);
    }
    Value::Object(object)
}

fn decode_one(value: &Field, field: &FieldDescriptor) -> Value {
    debug_assert!(field.cardinality() != Cardinality::Required);
    match (value, field.kind()) {
        (Field::Message(header), _) if header.descriptor().name() == "ResponseHeader" => {
            decode_header(header)
        }
        (Field::Message(message), _) => decode(message),
        (Field::EnumNumber(number), Kind::Enum(descriptor)) => descriptor
            .get_value(*number)
            .map_or_else(|| json!(number), |value| json!(value.name())),
        (Field::Bytes(bytes), _) => json!(escape(bytes)),
        (Field::String(text), _) if field.full_name().ends_with("StatusResponse.errors") => {
            json!(without_member(text))
        }
        (Field::String(text), _) => json!(text),
        (Field::Bool(flag), _) => json!(flag),
        (Field::I64(number), _) => json!(number),
        (Field::U64(number), _) => json!(number),
        (Field::U32(number), _) => json!(number),
        (other, kind) => panic!("no field {other:?} of kind {kind:?} is known"),
    }
}

/// A header as its revision and the names of those IDs that are 0; other IDs differ by server.
fn decode_header(header: &DynamicMessage) -> Value {
    let mut object = decode(header);
    let fields = object.as_object_mut().unwrap();
    let ids = ["cluster_id", "member_id", "raft_term"];
    let zero: Vec<&str> = ids
        .into_iter()
        .filter(|id| fields.remove(*id).is_none())
        .collect();
    match zero.len() {
        0 => {}
        3 => {
            fields.insert("ids".into(), json!(false));
        }
        _ => {
            fields.insert("zero".into(), json!(zero));
        }
    }
    object
}

/// An error of a status: the ID of the member differs by server.
fn without_member(text: &str) -> String {
    let Some((before, after)) = text.split_once("memberID:") else {
        return text.into();
    };
    let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}memberID:~{after}")
}
