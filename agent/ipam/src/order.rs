//! The order in which the numbers of a lane are drawn: ascending, or shuffled by a secret so that an address does not
//! reveal the next one.

use std::fmt;

use crate::lane::Lane;

#[cfg(test)]
mod tests;

/// Rounds of the Feistel network: four make it a strong pseudorandom permutation (Luby and Rackoff).
const ROUNDS: u32 = 4;

/// The key of a shuffled order. It may change between two runs: leased and quarantined addresses are not affected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// An order of the numbers of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending.
    Counting,
    /// A permutation of the lane, different for each lane. Addresses cannot be guessed from others; but it is not
    /// encryption: cohorts stay readable.
    Shuffled(Secret),
}

impl Order {
    /// The lane's first number.
    pub fn first(self, lane: Lane) -> u32 {
        Walk::new(self, lane).number(0)
    }

    /// The lane's numbers from `number` on, repeated without end; `number` must be in the lane.
    pub fn from(self, lane: Lane, number: u32) -> impl Iterator<Item = u32> {
        let walk = Walk::new(self, lane);
        let mut position = walk.position(number);
        std::iter::repeat_with(move || {
            let number = walk.number(position);
            position = walk.after(position);
            number
        })
    }

    /// The number after `number`, which must be in the lane; the first one after the last.
    pub fn after(self, lane: Lane, number: u32) -> u32 {
        let walk = Walk::new(self, lane);
        walk.number(walk.after(walk.position(number)))
    }
}

/// One lane in one order.
struct Walk {
    lane: Lane,
    shuffle: Option<Shuffle>,
}

impl Walk {
    fn new(order: Order, lane: Lane) -> Self {
        let shuffle = match order {
            Order::Counting => None,
            Order::Shuffled(secret) => Some(Shuffle::new(secret, lane)),
        };
        Self { lane, shuffle }
    }

    fn number(&self, position: u32) -> u32 {
        let shuffle = self.shuffle.as_ref();
        self.lane.first + shuffle.map_or(position, |shuffle| shuffle.offset(position))
    }

    fn position(&self, number: u32) -> u32 {
        let (shuffle, offset) = (self.shuffle.as_ref(), number - self.lane.first);
        shuffle.map_or(offset, |shuffle| shuffle.position(offset))
    }

    fn after(&self, position: u32) -> u32 {
        (position + 1) % self.lane.count
    }
}

/// A permutation of `0..count`: a Feistel network over the next even number of bits, applied again until the value is in
/// the range (cycle walking), which takes fewer than four steps on average.
struct Shuffle {
    keys: [u64; 2],
    tweak: u32,
    count: u32,
    half_bits: u32,
}

impl Shuffle {
    fn new(Secret(secret): Secret, lane: Lane) -> Self {
        let bits = u32::BITS - (lane.count - 1).leading_zeros();
        let secret = u128::from_le_bytes(secret);
        Self {
            keys: [low(secret), low(secret >> 64)],
            tweak: lane.first,
            count: lane.count,
            half_bits: bits.div_ceil(2).max(1),
        }
    }

    fn offset(&self, position: u32) -> u32 {
        self.walk(position, |left, right, round| {
            (right, left ^ self.mix(round, right))
        })
    }

    /// The inverse of `offset`.
    fn position(&self, offset: u32) -> u32 {
        self.walk(offset, |left, right, round| {
            let round = ROUNDS - 1 - round;
            (right ^ self.mix(round, left), left)
        })
    }

    fn walk(&self, start: u32, round: impl Fn(u32, u32, u32) -> (u32, u32)) -> u32 {
        let mask = (1 << self.half_bits) - 1;
        let mut value = start;
        loop {
            let halves = (value >> self.half_bits, value & mask);
            let (left, right) = (0..ROUNDS).fold(halves, |(l, r), n| round(l, r, n));
            value = left << self.half_bits | right;
            if value < self.count {
                return value;
            }
        }
    }

    fn mix(&self, round: u32, half: u32) -> u32 {
        let word = u64::from(self.tweak) << 32 | u64::from(round << 16 | half);
        let hash = siphash(self.keys, word);
        u32::try_from(hash & ((1 << self.half_bits) - 1)).unwrap_or(0)
    }
}

fn low(bits: u128) -> u64 {
    let bytes = bits.to_le_bytes();
    u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]))
}

/// SipHash-2-4 of one word (Aumasson and Bernstein, 2012).
fn siphash([k0, k1]: [u64; 2], word: u64) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last block holds the message's length in bytes.
    for block in [word, 8 << 56] {
        v[3] ^= block;
        (0..2).for_each(|_| sipround(&mut v));
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    (0..4).for_each(|_| sipround(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sipround(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}
