//! SYN cookies by their parts (RFC 4987 §3.6): which sizes a cookie names, for how long it is good, what the timestamp keeps.

use super::*;
use crate::tcp::config::Config;
use crate::tcp::types::State;
use crate::time::Duration;

fn flow(secret: &[u8; 16]) -> CookieFlow<'_> {
    let address = |host: u8, port| SocketAddr::from(([10, 0, 0, host], port));
    CookieFlow {
        secret,
        local: address(1, 80),
        remote: address(2, 1000),
    }
}

/// What a peer says that it takes is rounded down to one of eight; a SYN that does not say means 536 (RFC 9293 MUST-15).
#[test]
fn a_cookie_names_a_size() {
    let flow = flow(&[9; 16]);
    let now = Instant(90_000_000_000);
    for (mss, size) in [
        (None, 536),
        (Some(0), 64),
        (Some(64), 64),
        (Some(535), 64),
        (Some(536), 536),
        (Some(1_219), 536),
        (Some(1_220), 1_220),
        (Some(1_459), 1_440),
        (Some(1_460), 1_460),
        (Some(8_939), 1_460),
        (Some(u16::MAX), 8_940),
    ] {
        let cookie = flow.bake(SeqNum(7), mss, 5, now);
        assert_eq!(flow.taste(cookie, SeqNum(7), 5, now), Some(size), "{mss:?}");
    }
}

/// A cookie is good in its minute and the next; and for that flow, sequence number, size and options alone.
#[test]
fn a_cookie_is_good_for_one_to_two_minutes() {
    let flow = flow(&[9; 16]);
    let second = |n: u64| Instant(n * 1_000_000_000);
    for (made, tasted, good) in [
        (60, 60, true),
        (60, 119, true),
        (60, 179, true),
        (60, 180, false),
        (119, 180, false),
        (119, 179, true),
        (120, 119, false),
    ] {
        let cookie = flow.bake(SeqNum(7), Some(1_460), 5, second(made));
        let size = flow.taste(cookie, SeqNum(7), 5, second(tasted));
        assert_eq!(size.is_some(), good, "{made} {tasted}");
    }
    let now = second(60);
    let cookie = flow.bake(SeqNum(7), Some(1_460), 5, now);
    assert_eq!(flow.taste(cookie, SeqNum(8), 5, now), None);
    assert_eq!(flow.taste(cookie, SeqNum(7), 4, now), None);
    for other in 0..8 {
        let forged = SeqNum(cookie.0 & !7 | other);
        let size = flow.taste(forged, SeqNum(7), 5, now);
        assert_eq!(size.is_some(), forged == cookie, "another size");
    }
    let mut others = [flow; 4];
    others[0].local.set_port(81);
    others[1].remote.set_port(1_001);
    others[2].remote.set_ip([10, 0, 0, 3].into());
    others[3].secret = &[8; 16];
    for other in others {
        assert_eq!(other.taste(cookie, SeqNum(7), 5, now), None, "{other:?}");
    }
}

/// Each of what a cookie hashes has bits of its own: none of these numbers can be had for another.
#[test]
fn nothing_in_a_cookie_stands_for_something_else() {
    let flow = flow(&[9; 16]);
    let mut swapped = flow;
    swapped.local.set_port(1_000);
    swapped.remote.set_port(80);
    let mut low = flow;
    low.local.set_port(0x55);
    low.remote.set_port(0x55);
    let all = [
        flow.cookie(SeqNum(0), 0, 0, 0),
        swapped.cookie(SeqNum(0), 0, 0, 0),
        low.cookie(SeqNum(0), 0, 0, 0),
        flow.cookie(SeqNum(1), 0, 0, 0),
        flow.cookie(SeqNum(1 << 16), 0, 0, 0),
        flow.cookie(SeqNum(0), 1, 0, 0),
        flow.cookie(SeqNum(0), 1, 0, 1),
        flow.cookie(SeqNum(0), 3, 0, 1),
        flow.cookie(SeqNum(0), 0, 0, 1),
        flow.cookie(SeqNum(0), 0, 1, 1),
        flow.cookie(SeqNum(0), 0, 1, 0),
        flow.cookie(SeqNum(0), 0, 7, 0x7f),
    ];
    for (n, a) in all.iter().enumerate() {
        for b in &all[..n] {
            assert_ne!(a.0 >> 3, b.0 >> 3);
        }
        assert_eq!(a.0 & 7, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 7][n]);
    }
}

/// SipHash-2-4 of 55 bytes: both addresses, both ports, the peer's number, period, options, size, and what it is for.
#[test]
fn a_cookie_is_siphash_but_for_its_size() {
    use siphasher::sip::SipHasher24;
    let flow = flow(&[9; 16]);
    let mut text = alloc::vec::Vec::new();
    for word in [words(flow.local.ip()), words(flow.remote.ip())].concat() {
        text.extend(word.to_le_bytes());
    }
    text.extend(80_u16.to_le_bytes());
    text.extend(1_000_u16.to_le_bytes());
    text.extend(0xfedc_ba98_u32.to_le_bytes());
    text.extend(0x89ab_cdef_u32.to_le_bytes());
    text.extend([0x7f, 5, 0, 0, Purpose::Cookie as u8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(text.len(), 55);
    let hash = low_half(SipHasher24::new_with_key(flow.secret).hash(&text));
    let cookie = flow.cookie(SeqNum(0xfedc_ba98), 0x89ab_cdef, 5, 0x7f);
    assert_eq!((cookie.0 >> 3, cookie.0 & 7), (hash >> 3, 5));
}

/// The six bits are those of the options, the clock is set back for them by less than 64 ms, never forward.
#[test]
fn the_timestamp_keeps_the_options() {
    for clock in [64_u32, 100, 127, 128, 1 << 20, 0x1234_5678] {
        for options in 0..128 {
            let now = Instant(u64::from(clock) * 1_000_000);
            let value = with_options(now, options);
            assert_eq!(value & 0x3f, options & 0x3f);
            assert!(clock - value < 64, "{clock} {options}: {value}");
        }
    }
    assert_eq!(with_options(Instant(0), 1), 1_u32.wrapping_sub(64));
}

/// The SYN as it is told to the peer again: scale in four bits of which 15 means none, then SACK, then ECN.
#[test]
fn what_was_agreed_upon_comes_back() {
    let ack = Header {
        source_port: 5,
        destination_port: 6,
        seq: SeqNum(100),
        window: 77,
        options: Options {
            timestamps: Some(Timestamps { value: 8, echo: 9 }),
            ..Options::default()
        },
        ..Header::default()
    };
    for (options, scale, sack, ecn) in [
        (0x0f, None, false, false),
        (0x00, Some(0), false, false),
        (0x1e, Some(14), true, false),
        (0x27, Some(7), false, true),
        (0x3f, None, true, true),
    ] {
        let syn = syn_of(&ack, 1_300, options);
        assert_eq!(
            (syn.source_port, syn.destination_port, syn.window),
            (5, 6, 77)
        );
        assert_eq!((syn.seq, syn.options.mss), (SeqNum(99), Some(1_300)));
        assert_eq!(syn.options.window_scale, scale, "{options:x}");
        assert_eq!(syn.options.sack_permitted, sack, "{options:x}");
        let flags = if ecn {
            Flags::SYN | Flags::ECE | Flags::CWR
        } else {
            Flags::SYN
        };
        assert_eq!(syn.flags, flags);
        let told = Timestamps { value: 8, echo: 0 };
        assert_eq!(syn.options.timestamps, Some(told));
    }
}

/// The answer to a SYN with these options and flags, and what the ACK that follows `later` opens.
fn exchange(options: Options, flags: Flags, later: Duration) -> (Header, Option<Connection>) {
    let config = Config {
        ecn: crate::tcp::EcnMode::Accurate,
        ..Config::default()
    };
    let template = Template::new(&config);
    let flow = flow(&[9; 16]);
    let now = Instant(90_000_000_000);
    let start = Start::new(&config, (80, 1000), SeqNum(0), 0xffff_fff0);
    let syn = Header {
        source_port: 1000,
        destination_port: 80,
        seq: SeqNum(77),
        flags,
        window: 1000,
        options,
        ..Header::default()
    };
    let answer = template
        .cookie_answer(&start, &syn, &flow, now)
        .expect("an answer");
    let echo = answer.options.timestamps.map(|ts| ts.value);
    let ack = Header {
        seq: syn.seq + 1,
        ack: answer.seq + 1,
        flags: Flags::ACK,
        options: Options {
            timestamps: echo.map(|echo| Timestamps { value: 6, echo }),
            ..Options::default()
        },
        ..syn
    };
    let conn = template.from_cookie(&start, &ack, &flow, now + later);
    (answer, conn)
}

/// Without timestamps there is no place to keep scale, SACK and ECN: they are not agreed to, nor is it taken for granted.
#[test]
fn without_timestamps_little_is_agreed_upon() {
    let options = Options {
        mss: Some(1_300),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::default()
    };
    let (answer, conn) = exchange(options, Flags::SYN, Duration::ZERO);
    assert_eq!(answer.options.window_scale, None);
    assert!(!answer.options.sack_permitted && answer.options.timestamps.is_none());
    let conn = conn.expect("our cookie");
    assert!(!conn.scaling && !conn.sack && !conn.timestamps);
    assert_eq!((conn.state, conn.peer_mss), (State::SynReceived, 1_300));
    assert_eq!((conn.irs, conn.iss()), (SeqNum(77), answer.seq));
}

/// RFC 9768 §3.1.2: asked for accurate ECN, a cookie agrees to the classic one at most, for which it has a bit.
#[test]
fn accurate_ecn_becomes_classic() {
    let options = Options {
        timestamps: Some(Timestamps { value: 5, echo: 0 }),
        ..Options::default()
    };
    let accurate = Flags::SYN | Flags::ECE | Flags::CWR | Flags::AE;
    let (answer, conn) = exchange(options, accurate, Duration::ZERO);
    let told = answer.flags.0 & (Flags::ECE | Flags::CWR | Flags::AE).0;
    assert_eq!(told, Flags::ECE.0);
    assert!(conn.is_some());
}

/// The echo of a second ago at most is the handshake's round trip; an older one waited for something else.
#[test]
fn a_fresh_echo_is_a_round_trip() {
    let options = Options {
        timestamps: Some(Timestamps { value: 5, echo: 0 }),
        ..Options::default()
    };
    let mut counted = [false; 2];
    for ms in 900..1_010 {
        let (answer, conn) = exchange(options, Flags::SYN, Duration::from_millis(ms));
        let conn = conn.expect("our cookie");
        let echo = answer.options.timestamps.expect("timestamps").value;
        let age = conn
            .timestamp_value(Instant(90_000_000_000 + ms * 1_000_000))
            .wrapping_sub(echo);
        assert!(u64::from(age) - ms < 64);
        let counts = conn.ts_retransmitted == echo;
        assert_eq!(counts, age < 1_000, "{age}");
        counted[usize::from(counts)] = true;
        assert_eq!(conn.last_sent, Instant::FAR, "our SYN-ACK is long gone");
    }
    assert_eq!(counted, [true; 2]);
}
