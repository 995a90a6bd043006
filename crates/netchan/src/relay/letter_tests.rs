//! Letters come back as they went, and any bytes are a letter or none.

use super::*;

fn places() -> Vec<SocketAddr> {
    [
        "10.0.0.1:53",
        "[::ffff:10.0.0.1]:7",
        "0.0.0.0:0",
        "[fe80::1%9]:65535",
    ]
    .map(|text| text.parse().unwrap())
    .into()
}

#[test]
fn what_comes_is_told_whole() {
    for from in places() {
        for destination in places() {
            let info = DatagramInfo {
                destination,
                interface: 3,
                ttl: 64,
                tos: 0xff,
                segment: 1200,
                age: Duration::ZERO,
                drops: u32::MAX,
            };
            let arrived = Arrived {
                from: Some(from),
                info: Some(info),
                answer_from: Some(destination.ip()),
                at: Duration::from_nanos(u64::MAX),
            };
            let letter = Inward::Datagram(arrived);
            assert_eq!(Inward::decode(&letter.encode()), Some(letter));
            assert!(Outward::decode(&letter.encode()).is_err());
        }
    }
    let failed = Inward::Failed(111);
    assert_eq!(Inward::decode(&failed.encode()), Some(failed));
}

#[test]
fn what_is_sent_is_told_whole() {
    let bare = SendInfo::default();
    let full = SendInfo {
        source: Some("10.0.0.9".parse().unwrap()),
        interface: Some(0),
        ttl: Some(1),
        tos: Some(0),
        segment: Some(1472),
        more: true,
        ..bare
    };
    let mut letters = vec![Outward::Disconnect];
    for info in [bare, full] {
        letters.push(Outward::Datagram(None, info));
        for to in places() {
            letters.push(Outward::Datagram(Some(to), info));
            letters.push(Outward::Connect(to));
        }
    }
    for letter in letters {
        assert_eq!(Outward::decode(&letter.encode()).unwrap(), letter);
        assert_eq!(Inward::decode(&letter.encode()), None);
    }
}

#[test]
fn any_bytes_are_a_letter_or_none() {
    let mut state = 1_u64;
    for _ in 0..100_000 {
        let mut head = [0; HEAD];
        for byte in &mut head {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = u8::try_from(state >> 56).unwrap();
        }
        // Most places would be none; kinds and families that exist.
        head[0] %= 7;
        for at in [24, 47, 70] {
            head[at] = [0, 4, 6, 5][usize::from(head[at] % 4)];
        }
        if let Ok(letter) = Outward::decode(&head) {
            assert_eq!(Outward::decode(&letter.encode()).unwrap(), letter);
        }
        if let Some(letter) = Inward::decode(&head) {
            assert_eq!(Inward::decode(&letter.encode()), Some(letter));
        }
    }
}
