//! What is cut here comes together in the reassembler.

use super::*;
use crate::ip::Seed;
use crate::ip::reassembly::{Config, Outcome, Reassembler};
use crate::time::Instant;
use proptest::prelude::*;
use std::vec::Vec;

fn header4() -> ipv4::Header {
    let mut header = ipv4::Header::new(Protocol::ICMP, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    header.dont_fragment = false;
    header.ident = 77;
    header
}
fn header6() -> ipv6::Header {
    ipv6::Header::new(
        Protocol::UDP,
        "fd77::1".parse().unwrap(),
        "fd77::2".parse().unwrap(),
    )
}
fn data(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect()
}
fn packet(piece: &Piece, payload: &[u8]) -> Vec<u8> {
    let mut buf = std::vec![0; piece.len()];
    assert_eq!(piece.emit(payload, &mut buf), buf.len());
    buf
}

#[test]
fn what_fits_stays_whole() {
    let whole = v4(&header4(), &[], 1480, 1500).unwrap().collect::<Vec<_>>();
    assert_eq!(whole.len(), 1);
    assert!(
        !ipv4::Header::parse(&packet(&whole[0], &data(1480)))
            .unwrap()
            .is_fragment()
    );
    let whole = v6(&header6(), 1460, 1500, 1).unwrap().collect::<Vec<_>>();
    assert_eq!((whole.len(), whole[0].header().len()), (1, 40));
    assert_eq!(v4(&header4(), &[], 0, 1500).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let keep = ipv4::Header {
        dont_fragment: true,
        ..header4()
    };
    assert_eq!(
        v4(&keep, &[], 1481, 1500).unwrap_err(),
        Cannot::DontFragment
    );
    assert!(v4(&keep, &[], 1480, 1500).is_ok());
    assert_eq!(
        v4(&header4(), &[], 100, 27).unwrap_err(),
        Cannot::MtuTooSmall
    );
    assert_eq!(
        v4(&header4(), &[], 65_516, 1500).unwrap_err(),
        Cannot::TooLong
    );
    assert_eq!(
        v4(&header4(), &[0; 44], 8, 1500).unwrap_err(),
        Cannot::BadOptions
    );
    assert_eq!(
        v4(&header4(), &[0; 3], 8, 1500).unwrap_err(),
        Cannot::BadOptions
    );
    assert_eq!(v6(&header6(), 100, 55, 1).unwrap_err(), Cannot::MtuTooSmall);
    assert_eq!(
        v6(&header6(), 65_536, 1500, 1).unwrap_err(),
        Cannot::TooLong
    );
}

#[test]
fn only_options_with_the_copied_flag_are_copied() {
    // Record route (not copied), router alert (copied), end.
    let options = [7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0];
    let pieces: Vec<_> = v4(&header4(), &options, 3000, 1500).unwrap().collect();
    assert_eq!(pieces[0].header()[20..], options);
    assert_eq!(pieces[1].header()[20..], [148, 4, 0, 0]);
    for piece in &pieces {
        ipv4::Header::parse(&packet(piece, &data(3000))).unwrap();
    }
}

proptest! {
    #[test]
    fn ipv4_comes_together(len in 0usize..9000, mtu in 68u16..2000, options in 0usize..3) {
        let (payload, options) = (data(len), &[148u8, 4, 0, 0, 1, 1, 1, 0][..options * 4]);
        let mut r = Reassembler::new(Config::default(), Seed([1, 1]));
        let pieces: Vec<_> = v4(&header4(), options, len, mtu).unwrap().collect();
        let limit = Config::default().fragments;
        if pieces.len() > limit {
            return Ok(());
        }
        for (n, piece) in pieces.iter().enumerate() {
            let packet = packet(piece, &payload);
            prop_assert!(packet.len() <= usize::from(mtu));
            let header = ipv4::Header::parse(&packet).unwrap();
            if pieces.len() == 1 {
                prop_assert_eq!(header.payload(&packet), &payload[..]);
                break;
            }
            match r.push_v4(&packet, &header, Instant::ZERO) {
                Outcome::Complete(whole) => {
                    prop_assert_eq!(n + 1, pieces.len());
                    let header = ipv4::Header::parse(whole).unwrap();
                    prop_assert_eq!(header.payload(whole), &payload[..]);
                    prop_assert_eq!(header.options(whole), options);
                }
                got => prop_assert!(got == Outcome::Waiting && n + 1 < pieces.len(), "{got:?}"),
            }
        }
    }

    #[test]
    fn ipv6_comes_together(len in 8usize..9000, mtu in 80u16..2000) {
        let payload = data(len);
        let mut r = Reassembler::new(Config::default(), Seed([1, 1]));
        let pieces: Vec<_> = v6(&header6(), len, mtu, 99).unwrap().collect();
        if !(2..=Config::default().fragments).contains(&pieces.len()) {
            return Ok(());
        }
        for (n, piece) in pieces.iter().enumerate() {
            let packet = packet(piece, &payload);
            prop_assert!(packet.len() <= usize::from(mtu));
            let header = ipv6::Header::parse(&packet).unwrap();
            let upper = ipv6::extension::walk(header.next_header, header.payload(&packet)).unwrap();
            match r.push_v6(&packet, &header, &upper, Instant::ZERO) {
                Outcome::Complete(whole) => {
                    prop_assert_eq!(n + 1, pieces.len());
                    let header = ipv6::Header::parse(whole).unwrap();
                    prop_assert_eq!(header.payload(whole), &payload[..]);
                }
                got => prop_assert!(got == Outcome::Waiting && n + 1 < pieces.len(), "{got:?}"),
            }
        }
    }
}

/// RFC 791 §3.2: a router cuts a fragment again, and what comes together is the whole.
#[test]
fn a_fragment_is_cut_again() {
    let payload: Vec<u8> = (0..3000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let mut reassembler = Reassembler::new(Config::default(), Seed([1, 2]));
    let mut whole = None;
    let mut pieces = 0;
    for first in v4(&header4(), &[], payload.len(), 1500).unwrap() {
        let mut once = [0; 1500];
        let len = first.emit(&payload, &mut once);
        let header = ipv4::Header::parse(&once[..len]).unwrap();
        for second in v4(&header, &[], header.payload(&once).len(), 576).unwrap() {
            let mut twice = [0; 576];
            let len = second.emit(header.payload(&once), &mut twice);
            let header = ipv4::Header::parse(&twice[..len]).unwrap();
            pieces += 1;
            if let Outcome::Complete(bytes) =
                reassembler.push_v4(&twice[..len], &header, Instant::ZERO)
            {
                whole = Some(bytes[20..].to_vec());
            }
        }
    }
    assert_eq!((pieces, whole), (7, Some(payload)));
    let last = ipv4::Header {
        fragment_offset: 65_528,
        ..header4()
    };
    assert_eq!(v4(&last, &[], 8, 1500).err(), Some(Cannot::TooLong));
}
