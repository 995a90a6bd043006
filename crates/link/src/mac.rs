//! Link-layer addresses of our own: made from what tells links apart, marked as locally administered.

use proto::wire::ethernet::MacAddr;

use super::random::mix;

/// An address that is a function of `parts`: individual, locally administered (IEEE 802-2014 §8.4).
///
/// Equal parts give the same address in every run, so that a peer's neighbour cache stays right when we are started
/// again; links that can meet on one segment must differ in some part.
#[must_use]
pub fn derive(parts: &[&[u8]]) -> MacAddr {
    let mut hash = 0x6e65_7463_6861_6e00; // any constant; this one reads "netchan"
    for part in parts {
        hash = mix(hash ^ part.len() as u64);
        for &byte in *part {
            hash = mix(hash ^ u64::from(byte));
        }
    }
    let [_, _, mut first, rest @ ..] = hash.to_be_bytes();
    first = (first & 0b1111_1100) | 0b10;
    let [a, b, c, d, e] = rest;
    MacAddr([first, a, b, c, d, e])
}
