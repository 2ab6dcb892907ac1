//! Encoding of messages to buffers of their own size. tonic's default allocates 8 KiB for each direction of each call, which is more
//! than most messages have, and grows the buffer of a large response again and again.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{self, BufferSettings, EncodeBuf},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// First bytes of a response's buffer: frame header and response of most writes.
const RESPONSE_BYTES: usize = 256;
/// A stream sends what is encoded so far when it is longer than this; tonic's default.
const YIELD_BYTES: usize = 32 << 10;
/// The buffer of a request is allocated when its first frame has arrived, with the size of that.
const REQUEST_BYTES: usize = 0;

/// The codec of all services.
#[derive(Debug)]
pub(crate) struct Codec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self {
            messages: PhantomData,
        }
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Encoder {
            message: PhantomData,
        }
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(REQUEST_BYTES, YIELD_BYTES))
    }
}

/// An encoder that reserves the exact length of a message.
#[derive(Debug)]
pub(crate) struct Encoder<T> {
    message: PhantomData<T>,
}

impl<T: Message> codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message
            .encode(buffer)
            .map_err(|error| Status::internal(format!("failed to encode a response: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(RESPONSE_BYTES, YIELD_BYTES)
    }
}
