//! The raw messages against messages that prost derives.

use proptest::prelude::*;
use prost::Message;

use super::*;

/// `mvccpb.KeyValue` as prost would generate it.
#[derive(Clone, PartialEq, Message)]
struct Derived {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(int64, tag = "4")]
    version: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
    #[prost(int64, tag = "6")]
    lease: i64,
}

/// `mvccpb.Event` as prost would generate it.
#[derive(Clone, PartialEq, Message)]
struct DerivedEvent {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    kv: Option<Derived>,
    #[prost(message, optional, tag = "3")]
    prev_kv: Option<Derived>,
}

/// The pairs of `etcdserverpb.RangeResponse` as prost would generate them.
#[derive(Clone, PartialEq, Message)]
struct DerivedRange {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<Derived>,
}

prop_compose! {
    fn derived()(
        key in prop::collection::vec(any::<u8>(), 0..40),
        numbers in prop::array::uniform4(any::<i64>()),
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) -> Derived {
        let [create_revision, mod_revision, version, lease] = numbers;
        Derived { key, create_revision, mod_revision, version, value, lease }
    }
}

fn fields(of: &Derived) -> Fields<'_> {
    Fields {
        key: &of.key,
        create_revision: of.create_revision,
        mod_revision: of.mod_revision,
        version: of.version,
        value: &of.value,
        lease: of.lease,
    }
}

/// The encoded fields behind the key.
fn rest(of: &Derived) -> Vec<u8> {
    let mut out = Vec::new();
    fields(of).encode_head(&mut out);
    assert!(out.len() <= HEAD_BYTES_MAX);
    out.extend_from_slice(&of.value);
    let before = out.len();
    fields(of).encode_tail(&mut out);
    assert!(out.len() - before <= TAIL_BYTES_MAX);
    out
}

proptest! {
    #[test]
    fn a_pair_is_encoded_and_decoded_as_the_derived_message(message in derived()) {
        let encoded = KeyValue::encode(&message.key, &rest(&message));
        prop_assert_eq!(&encoded.encoded()[..], message.encode_to_vec());
        let decoded = KeyValue::decode(&encoded.encoded()[..]).unwrap();
        prop_assert_eq!(&decoded, &encoded);
        prop_assert_eq!(decoded.fields(), fields(&message));
    }

    #[test]
    fn an_event_is_encoded_and_decoded_as_the_derived_message(
        message in derived(),
        prev in prop::option::of(derived()),
        deleted in any::<bool>(),
    ) {
        let prev = prev.map(|prev| Derived { key: message.key.clone(), ..prev });
        let event = DerivedEvent { kind: deleted.into(), kv: Some(message.clone()), prev_kv: prev.clone() };
        let (kv, before) = (rest(&message), prev.as_ref().map(rest));
        let parts = EventParts { deleted, key: &message.key, kv: &kv, prev: before.as_deref() };
        let encoded = PageBuffer::default().event(&parts);
        prop_assert_eq!(&encoded.encoded()[..], event.encode_to_vec());
        let decoded = Event::decode(&encoded.encoded()[..]).unwrap();
        prop_assert_eq!(decoded.is_delete(), deleted);
        prop_assert_eq!(decoded.kv(), fields(&message));
        prop_assert_eq!(decoded.prev_kv(), prev.as_ref().map(fields));
    }

    #[test]
    fn a_pair_without_its_value_keeps_the_other_fields(message in derived()) {
        let mut pairs = PairsBuffer::default();
        pairs.push_key_only(&message.key, &rest(&message));
        let encoded = pairs.take().messages().next().unwrap();
        let stripped = Derived { value: Vec::new(), ..message };
        prop_assert_eq!(encoded.fields(), fields(&stripped));
        prop_assert_eq!(&encoded.encoded()[..], stripped.encode_to_vec());
    }

    #[test]
    fn pairs_are_encoded_as_the_field_of_a_range_response(
        messages in prop::collection::vec(derived(), 0..40),
        large in 0..200_000_usize,
    ) {
        let mut buffer = PairsBuffer::default();
        let large = Derived { value: vec![7; large], ..Derived::default() };
        let messages: Vec<_> = messages.into_iter().chain([large.clone(), large]).collect();
        for message in &messages {
            buffer.push(&message.key, &rest(message));
        }
        let pairs = buffer.take();
        prop_assert_eq!(buffer.take().len(), 0);
        let response = DerivedRange { kvs: messages.clone() };
        prop_assert_eq!(pairs.encoded_len(), response.encoded_len());
        prop_assert_eq!(pairs.len(), messages.len());
        let found: Vec<_> = pairs.messages().collect();
        prop_assert_eq!(found.len(), messages.len());
        for (found, wanted) in found.iter().zip(&messages) {
            prop_assert_eq!(found.fields(), fields(wanted));
        }
        prop_assert_eq!(pairs.into_chunks().concat(), response.encode_to_vec());
    }

    #[test]
    fn bytes_that_are_no_message_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _fields = Fields::decode(&bytes);
        if let Ok(message) = KeyValue::decode(&bytes[..]) {
            prop_assert!(KeyValue::decode(&message.encoded()[..]).is_ok());
        }
    }
}
