//! SipHash (Aumasson and Bernstein, 2012) of messages that are words already: without the key an attacker can neither guess
//! a value nor choose messages that collide. General implementations have to gather their words first, which takes as long again.

/// A secret key, as the four words that a hash begins with.
#[derive(Clone, Debug)]
pub struct Key([u64; 4]);

impl Key {
    /// Of 16 random bytes that are kept secret.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        let [k0, k1] = halves(key);
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    /// SipHash-`C`-`D` of `words`, little-endian; the last has the message's length in bytes (modulo 256) on top.
    #[inline(always)]
    #[must_use]
    pub fn hash<const C: usize, const D: usize>(&self, words: &[u64]) -> u64 {
        let mut v = self.0;
        for word in words {
            v[3] ^= word;
            for _ in 0..C {
                v = round(v);
            }
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        for _ in 0..D {
            v = round(v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

/// The two words of 16 bytes.
#[inline]
#[must_use]
pub const fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
    ]
}

/// SipRound.
#[inline(always)]
const fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    d = d.rotate_left(21) ^ a;
    b = b.rotate_left(17) ^ c;
    [a, b, c.rotate_left(32), d]
}

#[cfg(test)]
mod tests {
    use siphasher::sip::{SipHasher13, SipHasher24};

    use super::*;

    #[test]
    fn is_siphash() {
        for seed in 1..200_u8 {
            let mut key = [0; 16];
            key.iter_mut()
                .zip(seed..)
                .for_each(|(byte, n): (&mut u8, u8)| *byte = n.wrapping_mul(91));
            let bytes: std::vec::Vec<u8> = (0..39).map(|n| seed.wrapping_mul(n) ^ n).collect();
            let (whole, rest) = bytes.as_chunks::<8>();
            let mut words: std::vec::Vec<_> =
                whole.iter().map(|w| u64::from_le_bytes(*w)).collect();
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            last[7] = 39;
            words.push(u64::from_le_bytes(last));
            let ours = Key::new(&key);
            assert_eq!(
                ours.hash::<2, 4>(&words),
                SipHasher24::new_with_key(&key).hash(&bytes)
            );
            assert_eq!(
                ours.hash::<1, 3>(&words),
                SipHasher13::new_with_key(&key).hash(&bytes)
            );
        }
    }
}
