//! Datagrams there and back, and the malformed ones: negative 49, 51, 52, 53.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

type Ends = [&'static str; 2];
const V4: Ends = ["10.0.0.1", "10.0.0.2"];
const V6: Ends = ["fd77::1", "fd77::2"];

fn ends(of: Ends) -> (IpAddr, IpAddr) {
    (of[0].parse().unwrap(), of[1].parse().unwrap())
}
fn datagram(of: Ends, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends(of);
    let mut buf = std::vec![0; payload.len() + 8];
    assert_eq!(send((from, 1000), (to, 2000), payload, &mut buf), buf.len());
    buf
}
fn judge(of: Ends, bytes: &[u8]) -> Result<Datagram<'_>, DropReason> {
    let (from, to) = ends(of);
    receive(from, to, bytes, false)
}

#[test]
fn there_and_back() {
    for of in [V4, V6] {
        for payload in [&b""[..], b"x", b"hello", &[0xff; 1472]] {
            let bytes = datagram(of, payload);
            let got = judge(of, &bytes).unwrap();
            assert_eq!(
                got,
                Datagram {
                    source_port: 1000,
                    destination_port: 2000,
                    payload
                }
            );
            let (from, to) = ends(of);
            let mut again = std::vec![0; 8];
            again.extend_from_slice(payload);
            assert_eq!(
                send_in_place((from, 1000), (to, 2000), &mut again),
                again.len()
            );
            assert_eq!(again, bytes);
        }
    }
}

#[test]
fn negative_51_lengths() {
    let bytes = datagram(V4, b"hello");
    assert_eq!(judge(V4, &bytes[..7]), Err(DropReason::Truncated));
    assert_eq!(judge(V4, &[]), Err(DropReason::Truncated));
    for length in [0u16, 1, 7, 14, 65535] {
        let mut bytes = bytes.clone();
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(judge(V4, &bytes), Err(DropReason::Length), "{length}");
    }
    let mut padded = bytes;
    padded.extend_from_slice(&[0; 20]);
    assert_eq!(
        judge(V4, &padded).map(|d| d.payload),
        Ok(&b"hello"[..]),
        "padding is not data"
    );
}

#[test]
fn negative_49_52_checksums() {
    for (of, none) in [(V4, true), (V6, false)] {
        let mut bytes = datagram(of, b"hello");
        bytes[9] ^= 1;
        assert_eq!(judge(of, &bytes), Err(DropReason::Checksum));
        let (from, to) = ends(of);
        assert!(
            receive(from, to, &bytes, true).is_ok(),
            "the link vouches for it"
        );
        bytes[6..8].copy_from_slice(&[0, 0]);
        assert_eq!(judge(of, &bytes).is_ok(), none);
        assert_eq!(
            receive(from, to, &bytes, true).is_ok(),
            none,
            "but not for a missing one"
        );
    }
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    let (from, to) = ends(V4);
    for low in 0..=u16::MAX {
        let mut buf = [0; 10];
        send((from, 1000), (to, 2000), &low.to_be_bytes(), &mut buf);
        assert_ne!(buf[6..8], [0, 0]);
    }
}

#[test]
fn negative_53_port_zero_and_what_does_not_fit() {
    let mut bytes = datagram(V4, b"hello");
    bytes[2..4].copy_from_slice(&[0, 0]);
    assert_eq!(judge(V4, &bytes), Err(DropReason::PortZero));
    let (v4, v6) = (ends(V4), ends(V6));
    assert_eq!(send((v4.0, 1), (v4.1, 2), b"hello", &mut [0; 12]), 0);
    assert_eq!(send((v4.0, 1), (v4.1, 2), b"", &mut [0; 7]), 0);
    assert_eq!(send((v4.0, 1), (v6.1, 2), b"hello", &mut [0; 13]), 0);
    assert_eq!(send((v4.0, 1), (v4.1, 2), &[0; 65528], &mut [0; 70000]), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64), six in any::<bool>()) {
        if let Ok(datagram) = judge(if six { V6 } else { V4 }, &bytes) {
            prop_assert!(datagram.payload.len() + 8 <= bytes.len());
        }
    }
}
