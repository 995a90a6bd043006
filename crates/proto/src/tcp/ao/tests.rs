//! TCP-AO against the vectors of RFC 9235, around zero, and with keys that change.

use alloc::{vec, vec::Vec};

use super::*;
use crate::wire::tcp::{Header, Options};

/// One packet of RFC 9235: timestamps, traffic key, code.
type Packet = ([u32; 2], &'static str, &'static str);

/// A connection of RFC 9235: the client's port, both initial sequence numbers, what the last packet acknowledges beyond the client's,
/// and its packets: SYN, SYN-ACK, text there, text back.
type Vector = (u16, [u32; 2], u32, [Packet; 4]);

/// RFC 9235 §4.1, §4.2, §5.1, §5.2, §6.1, §6.2, §7.1, §7.2: IPv4 before IPv6, HMAC-SHA-1-96 before AES-128-CMAC-96, with options covered
/// before without.
#[rustfmt::skip]
const VECTORS: [Vector; 8] = [
    (0xe9d7, [0xfbfb_ab5a, 0x11c1_4261], 0x44, [
        ([0x0015_5ab7, 0], "6d63ef1b02fe1509d4b1402707fd7b0416abb74f", "2ee437c6f8ede6d7c4d602e7"),
        ([0x84a5_0beb, 0x0015_5ab7], "d9e217e4834a80ca2f3fd8de2e41b8e6797fea96", "eeab0fe24c3010815116b3be"),
        ([0x0015_5ac1, 0x84a5_0beb], "d2e59c65ffc7b1a39347656463b70edc24a13d71", "7064cf998cc6c315c2c2e2bf"),
        ([0x84a5_0bf5, 0x0015_5ac1], "d9e217e4834a80ca2f3fd8de2e41b8e6797fea96", "a63f0ecbbb2e635c954deac7"),
    ]),
    (0xff12, [0xcb0e_fbee, 0xacd5_b5e1], 0x44, [
        ([0x0002_4cce, 0], "30eaa1560cf0be57dab5c045229fb10a423cd7ea", "80af3cfeb85368937b8f9ec2"),
        ([0x5767_72f3, 0x0002_4cce], "b5b2896bb3664e8176b0edc6e799524101a8307f", "09306f9acea63a8c68cb9a70"),
        ([0x0002_4cce, 0x5767_72f3], "f3db1793d7910ecd806c34f155ea1f00345953e3", "710608cc696c03a271c93aa5"),
        ([0x5767_72f3, 0x0002_4cce], "b5b2896bb3664e8176b0edc6e799524101a8307f", "97766e48ac262de9ae61b4f9"),
    ]),
    (0xc4fa, [0x787a_1ddf, 0xfadd_6de9], 0x44, [
        ([0x0001_7ed0, 0], "f5b8b3d5f34fdbb6eb8d4ab9660e60e3", "e477e99c8040765498e55091"),
        ([0x93f4_e9e8, 0x0001_7ed0], "4bc7571a486f3264bbd888474066b4b1", "d6ada7bc4cdd536d1769db5f"),
        ([0x0001_7ed0, 0x93f4_e9e8], "8c8ae0e8371ec5cbb97ea79d90418391", "77412742fa4dc433eff0973e"),
        ([0x93f4_e9e8, 0x0001_7ed0], "4bc7571a486f3264bbd888474066b4b1", "f6d965a78382a74845f72dac"),
    ]),
    (0xda1c, [0x389b_ed71, 0xd384_4a6f], 0x01, [
        ([0x0001_85e1, 0], "2cdbae1392c49449fa92c4509735d50e", "c44e60cb31f7c0b1de3d2749"),
        ([0xce45_9838, 0x0001_85e1], "3ce67a551869506b6347b633c50a624a", "3a6abb207e49b1be7136db90"),
        ([0x0001_85e1, 0xce45_9838], "035bc400a341ffe595f59f58005006ca", "7585e9e9d5c3ec857b96f837"),
        ([0xce45_9838, 0x0001_85e1], "3ce67a551869506b6347b633c50a624a", "5c040fd9233304765c0982f4"),
    ]),
    (0xf7e4, [0x176a_833f, 0x3f51_994b], 0x44, [
        ([0x0041_d087, 0], "625ec09d575836edc9b6428418bbf06989a361bb", "9033ec3d7334b64c5edd039f"),
        ([0xbd33_129b, 0x0041_d087], "e4a37ada2a0afca8711434913fe138c771ebcb4a", "f1cba346c3526163f71f1f55"),
        ([0x0041_d091, 0xbd33_129b], "1ed82975f4ea444c61580c5bd90dbd61bbc91b7e", "bf0805feb4ac7b163d6fcdf2"),
        ([0xbd33_12a5, 0x0041_d091], "e4a37ada2a0afca8711434913fe138c771ebcb4a", "6c48125c11335bab9a07a797"),
    ]),
    (0xc6cd, [0x020c_1e69, 0xeba3_734d], 0x44, [
        ([0x009d_b95b, 0], "31a3faf69effae52931b7f845467315c270a4edc", "885698b0530ed4d5a15f8346"),
        ([0x5ec9_9b70, 0x009d_b95b], "405108947f996575e7bdbc26d40216a2c7fa91bd", "3c546bad9743f12df8b8010d"),
        ([0x009d_b965, 0x5ec9_9b70], "b34eed6a9396a669f1c4f4f57618f3656f52c7ab", "48bd093b1924e001192f5bf0"),
        ([0x5ec9_9b7a, 0x009d_b965], "405108947f996575e7bdbc26d40216a2c7fa91bd", "559a819445b4fde98d9e1317"),
    ]),
    (0xf85a, [0x193c_ccec, 0xa674_4ecb], 0x44, [
        ([0x13e4_ab99, 0], "fa5a2108882d39d0c71929175ab1b7b8", "59b588107481ac6dc3927040"),
        ([0x71da_abc8, 0x13e4_ab99], "cf1b1e225e06a63616764a067b46f4b1", "dc2843a84e78a6bcfdc5ed80"),
        ([0x13e4_aba3, 0x71da_abc8], "6174c3557abed27574dba37185f00300", "7b6a455c0d4f5f01835baab3"),
        ([0x71da_abd3, 0x13e4_aba3], "cf1b1e225e06a63616764a067b46f4b1", "c1069b7dfd3d693a6df3f289"),
    ]),
    (0xf288, [0xb01d_a74a, 0xa624_6145], 0x44, [
        ([0x1427_5b3b, 0], "a94f511263e4093d35dd818c13bbbf53", "3d45b4342de8bb1530847898"),
        ([0x1782_245b, 0x1427_5b3b], "92dea5bbc78b1d9f5b2952e9cd30642a", "1d01f6c87c6f93acffa9d4b5"),
        ([0x1427_5b4f, 0x1782_245b], "4fb2086e402c679079ed65d4bf97693d", "290cf414ccb47a333276e7f8"),
        ([0x1782_2465, 0x1427_5b4f], "92dea5bbc78b1d9f5b2952e9cd30642a", "99515ffcd5403499f619fd1b"),
    ]),
];

const SECRET: &[u8] = b"testvector";
const CLIENT_ID: u8 = 61;
const SERVER_ID: u8 = 84;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// The packet `n` of a connection, its code zero.
fn segment(of: usize, n: usize) -> Vec<u8> {
    let (port, [client, server], acked, packets) = &VECTORS[of];
    let (is_v6, from_server) = (of >= 4, n % 2 == 1);
    let ([value, echo], _, _) = packets[n];
    let opens = n < 2;
    let ports = [(*port, 179), (179, *port)][n % 2];
    let [seq, ack] = match n {
        0 => [*client, 0],
        1 => [*server, client.wrapping_add(1)],
        2 => [client.wrapping_add(1), server.wrapping_add(1)],
        _ => [server.wrapping_add(1), client.wrapping_add(*acked)],
    };
    let flags = [0xe002, 0xe012, 0xc018, 0xc018_u16][n];
    let window = match (opens, is_v6 || from_server) {
        (true, _) => 0xffff,
        (_, false) => 0x0104,
        (_, true) => 0x0100_u16,
    };
    let mut all = Vec::new();
    for field in [ports.0, ports.1] {
        all.extend(field.to_be_bytes());
    }
    all.extend(seq.to_be_bytes());
    all.extend(ack.to_be_bytes());
    for field in [flags, window, 0, 0] {
        all.extend(field.to_be_bytes());
    }
    if opens {
        let mss = if is_v6 { 0xa0 } else { 0xb4 };
        all.extend([2, 4, 5, mss, 1, 3, 3, 8, 4, 2]);
    } else {
        all.extend([1, 1]);
    }
    all.extend([8, 10]);
    all.extend(value.to_be_bytes());
    all.extend(echo.to_be_bytes());
    all.extend([29, 16]);
    all.extend([[CLIENT_ID, SERVER_ID], [SERVER_ID, CLIENT_ID]][n % 2]);
    all.extend([0; 12]);
    if !opens {
        all.extend(open_message(is_v6, from_server));
    }
    all
}

/// BGP's OPEN, which is the text of each.
fn open_message(is_v6: bool, from_server: bool) -> Vec<u8> {
    let (number, id) = match (is_v6, from_server) {
        (false, false) => ("dabf", "0a0b0c0d"),
        (false, true) => ("dac0", "ac1b1c1d"),
        (true, false) => ("fde8", "01010179"),
        (true, true) => ("fde8", "0101017a"),
    };
    let parts = [
        "ffffffffffffffffffffffffffffffff00430104",
        number,
        "00b4",
        id,
        "260206010400010001020280000202020002024200020641040000",
        number,
        "02084006006400010100",
    ];
    bytes(&parts.concat())
}

fn ends(of: usize) -> (SocketAddr, SocketAddr) {
    let (client, server) = if of < 4 {
        ("10.11.12.13", "172.27.28.29")
    } else {
        ("fd00::1", "fd00::2")
    };
    let ip = |text: &str| text.parse::<core::net::IpAddr>().unwrap();
    ((ip(client), VECTORS[of].0).into(), (ip(server), 179).into())
}

fn key(of: usize, ids: [u8; 2]) -> AoKey {
    let algorithm = [AoAlgorithm::HmacSha1, AoAlgorithm::Aes128Cmac][of % 4 / 2];
    let key = AoKey::new(algorithm, SECRET, ids[0], ids[1]).unwrap();
    if of % 2 == 1 {
        key.excluding_options()
    } else {
        key
    }
}

/// The client's session and the server's.
fn sessions(of: usize) -> [AoSession; 2] {
    let (client, server) = ends(of);
    let make = |local, remote, ids| {
        let keys = [Arc::new(key(of, ids))];
        AoSession::new(local, remote, keys, (None, None)).unwrap()
    };
    [
        make(client, server, [CLIENT_ID, SERVER_ID]),
        make(server, client, [SERVER_ID, CLIENT_ID]),
    ]
}

/// Where both begin, as the sender or receiver of packet `n` knows it.
fn isns(of: usize, n: usize, client_side: bool) -> AoIsns {
    let [client, server] = VECTORS[of].1.map(SeqNum);
    if client_side {
        let remote = (n > 1).then_some(server);
        AoIsns {
            local: client,
            remote,
        }
    } else {
        AoIsns {
            local: server,
            remote: Some(client),
        }
    }
}

/// RFC 9235 §4 to §7: traffic keys and codes of 32 packets, made by one end and taken by the other.
#[test]
fn the_vectors_of_rfc_9235() {
    for (of, (_, begin, _, packets)) in VECTORS.iter().enumerate() {
        let [mut client, mut server] = sessions(of);
        let (a, b) = ends(of);
        for (n, (_, traffic, code)) in packets.iter().enumerate() {
            let [ours, theirs] = begin.map(SeqNum);
            let (from, to, isn) = match n {
                0 => (a, b, [ours, SeqNum(0)]),
                2 => (a, b, [ours, theirs]),
                _ => (b, a, [theirs, ours]),
            };
            let made = key(of, [0, 0]).traffic_key((from, to), isn[0], isn[1]);
            let wanted = bytes(traffic);
            assert_eq!(made[..wanted.len()], wanted, "traffic key {of} {n}");

            let mut signed = segment(of, n);
            let from_client = n % 2 == 0;
            let sender = if from_client {
                &mut client
            } else {
                &mut server
            };
            assert!(sender.sign(isns(of, n, from_client), &mut signed));
            let at = signed.len() - 12 - if n < 2 { 0 } else { 67 };
            assert_eq!(signed[at..at + 12], bytes(code), "code {of} {n}");
            let receiver = if from_client {
                &mut server
            } else {
                &mut client
            };
            let verdict = receiver.verify(isns(of, n, !from_client), &signed);
            assert_eq!(verdict, AoVerdict::Good, "{of} {n}");
        }
    }
}

fn plain(seq: SeqNum, ack: SeqNum, flags: Flags, free: u8) -> Vec<u8> {
    let header = Header {
        source_port: 179,
        destination_port: 4000,
        seq,
        ack,
        flags,
        window: 3,
        options: Options {
            free,
            ..Options::default()
        },
        ..Header::default()
    };
    let mut bytes = vec![0; header.len()];
    assert_eq!(header.emit(&mut bytes), bytes.len());
    bytes.extend_from_slice(b"text");
    bytes
}

/// Two ends with these keys, ids as the first end sees them, that begin at `isns`.
fn pair(keys: &[[u8; 2]], isns: [u32; 2]) -> ([AoSession; 2], [AoIsns; 2]) {
    let (a, b) = (([10, 0, 0, 1], 179).into(), ([10, 0, 0, 2], 4000).into());
    let make = |local, remote, swap: bool| {
        let keys = keys.iter().map(|&[send, receive]| {
            let secret = [send, receive, 7];
            let (send, receive) = if swap {
                (receive, send)
            } else {
                (send, receive)
            };
            Arc::new(AoKey::new(AoAlgorithm::Aes128Cmac, &secret, send, receive).unwrap())
        });
        AoSession::new(local, remote, keys, (None, None)).unwrap()
    };
    let [ours, theirs] = isns.map(SeqNum);
    let begin = |local, remote| AoIsns {
        local,
        remote: Some(remote),
    };
    (
        [make(a, b, false), make(b, a, true)],
        [begin(ours, theirs), begin(theirs, ours)],
    )
}

/// RFC 5925 §6.2: the extension counts how often zero was passed; what is late is counted as when it left, and a replay from before does
/// not fit.
#[test]
fn sequence_numbers_come_round() {
    for isn in [0xffff_ff00, 0, 5, u32::MAX, 0x8000_0000] {
        let ([mut a, mut b], [at_a, at_b]) = pair(&[[1, 2]], [isn, 9]);
        let mut kept = Vec::new();
        // In steps that a window could take, three times round.
        let steps = (0..=13_u64).map(|n| n * (1 << 30) + u64::from(isn) + 1);
        for at in steps {
            let sign = |a: &mut AoSession, at: u64| {
                let seq = SeqNum((at & 0xffff_ffff) as u32);
                let mut segment = plain(seq, SeqNum(9), Flags::ACK, a.room());
                assert!(a.sign(at_a, &mut segment));
                segment
            };
            let ahead = sign(&mut a, at + 100);
            let late = sign(&mut a, at.max(u64::from(isn) + 101) - 100);
            assert_eq!(b.verify(at_b, &ahead), AoVerdict::Good, "{isn} {at}");
            assert_eq!(b.verify(at_b, &late), AoVerdict::Good, "{isn} {at}, late");
            kept.push(ahead);
        }
        // A whole round earlier, with the very sequence number that is expected.
        for (n, old) in kept.iter().enumerate().take(9) {
            assert_eq!(b.verify(at_b, old), AoVerdict::Bad, "{isn}: replay {n}");
        }
        let last = kept.last().unwrap();
        assert_eq!(b.verify(at_b, last), AoVerdict::Good);
    }
}

/// What is forged moves nothing: neither how far the sequence numbers have come nor the key.
#[test]
fn a_forgery_changes_nothing() {
    let ([mut a, mut b], [at_a, at_b]) = pair(&[[1, 2], [3, 4]], [1000, 9]);
    let mut forged = plain(SeqNum(1 << 31), SeqNum(9), Flags::ACK, 16);
    a.clone().sign(at_a, &mut forged);
    let code = forged.len() - 5;
    forged[code] ^= 1;
    forged[23] = 4;
    for _ in 0..3 {
        assert_eq!(b.verify(at_b, &forged), AoVerdict::Bad);
    }
    assert_eq!(b.ids(), AoIds { key: 2, next: 1 });
    let mut honest = plain(SeqNum(1001), SeqNum(9), Flags::ACK, 16);
    a.sign(at_a, &mut honest);
    assert_eq!(b.verify(at_b, &honest), AoVerdict::Good);
    assert_eq!((b.counts().good, b.counts().bad), (1, 3));
}

/// RFC 5925 §7.5 (2) e, §8: a peer that asks for another key is answered with it, by an end that has it.
#[test]
fn keys_roll_over() {
    let ([mut a, mut b], [at_a, at_b]) = pair(&[[1, 2], [3, 4]], [7, 9]);
    let send = |a: &mut AoSession, b: &mut AoSession, isns: [AoIsns; 2]| {
        let mut segment = plain(isns[0].local + 1, SeqNum(0), Flags::ACK, a.room());
        assert!(a.sign(isns[0], &mut segment));
        assert_eq!(b.verify(isns[1], &segment), AoVerdict::Good);
        ao_ids(&segment).unwrap()
    };
    assert_eq!(
        send(&mut a, &mut b, [at_a, at_b]),
        AoIds { key: 1, next: 2 }
    );
    assert!(a.set_next(4) && !a.set_next(5));
    assert_eq!(
        send(&mut a, &mut b, [at_a, at_b]),
        AoIds { key: 1, next: 4 }
    );
    // b turns to it, and asks for its own still.
    assert_eq!(b.ids(), AoIds { key: 4, next: 1 });
    let pair_back = |b: &mut AoSession, a: &mut AoSession| {
        let mut segment = plain(at_b.local + 1, SeqNum(0), Flags::ACK, b.room());
        segment[..4].copy_from_slice(&[0x0f, 0xa0, 0, 179]);
        assert!(b.sign(at_b, &mut segment));
        assert_eq!(a.verify(at_a, &segment), AoVerdict::Good);
    };
    pair_back(&mut b, &mut a);
    assert_eq!(a.ids(), AoIds { key: 1, next: 4 });
    assert!(b.set_next(3));
    pair_back(&mut b, &mut a);
    assert_eq!(a.ids(), AoIds { key: 3, next: 4 });
    // The old one may go now; one in use may not.
    assert!(!a.remove(3, 4) && !a.remove(1, 4) && a.remove(1, 2));
    assert_eq!(a.ids(), AoIds { key: 3, next: 4 });
    assert!(!b.remove(4, 3) && b.remove(2, 1));
    assert_eq!(
        send(&mut a, &mut b, [at_a, at_b]),
        AoIds { key: 3, next: 4 }
    );
    let good: Vec<u64> = a.keys().map(|key| key.good).collect();
    assert_eq!(good, [2]);
}

/// RFC 5925 §5.1: each bit of the segment counts, and with options left out all but those of other options.
#[test]
fn each_bit_counts() {
    for of in 0..8 {
        let [mut client, server] = sessions(of);
        let mut signed = segment(of, 2);
        assert!(client.sign(isns(of, 2, true), &mut signed));
        for bit in 0..signed.len() * 8 {
            let mut changed = signed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let excluded = of % 2 == 1 && (20..32).contains(&(bit / 8));
            let covered = !(16..18).contains(&(bit / 8)) && !excluded;
            let verdict = server.clone().verify(isns(of, 2, false), &changed);
            assert!(!(covered && verdict == AoVerdict::Good), "{of}: bit {bit}");
        }
        // A middlebox that replaces a timestamp.
        let mut changed = signed.clone();
        changed[25] ^= 0xff;
        let verdict = server.clone().verify(isns(of, 2, false), &changed);
        assert_eq!(verdict == AoVerdict::Good, of % 2 == 1);
    }
}

/// RFC 5925 §2.2, §7.5: no option, another key, two options, MD5's beside it, a code of another length, another connection's numbers.
#[test]
fn what_is_not_taken() {
    let ([mut a, b], [at_a, at_b]) = pair(&[[1, 2]], [100, 200]);
    let mut good = plain(SeqNum(101), SeqNum(201), Flags::ACK, 16);
    assert!(a.sign(at_a, &mut good));
    let verify = |isns, segment: &[u8]| b.clone().verify(isns, segment);
    assert_eq!(verify(at_b, &good), AoVerdict::Good);
    let bare = plain(SeqNum(101), SeqNum(201), Flags::ACK, 0);
    assert_eq!(verify(at_b, &bare), AoVerdict::Missing);
    let mut other = good.clone();
    other[22] = 77;
    assert_eq!(verify(at_b, &other), AoVerdict::NoKey);
    for len in [2, 3, 15, 14] {
        let mut cut = good.clone();
        cut[21] = len;
        assert_ne!(verify(at_b, &cut), AoVerdict::Good, "{len}");
    }
    for len in 0..good.len() {
        assert_ne!(verify(at_b, &good[..len]), AoVerdict::Good, "{len}");
    }
    let elsewhere = AoIsns {
        local: SeqNum(201),
        ..at_b
    };
    assert_eq!(verify(elsewhere, &good), AoVerdict::Bad);
    let twice = [&good[..20], &good[20..36], &good[20..]].concat();
    let mut twice_long = twice;
    twice_long[12] = 13 << 4;
    assert_eq!(verify(at_b, &twice_long), AoVerdict::Bad);
    let mut beside = [&good[..36], &[19, 18][..], &[0; 16], &[1, 1], &good[36..]].concat();
    beside[12] = 14 << 4;
    assert_eq!(verify(at_b, &beside), AoVerdict::Bad);
    // No room: nothing is signed.
    assert!(!a.sign(at_a, &mut bare.clone()));
    assert!(!a.sign(at_a, &mut []));
}

/// SYN-SENT (RFC 5925 §7.4, §7.5): an end that knows nothing of the peer takes a SYN, its answer or a reset, and nothing else.
#[test]
fn before_the_peer_is_known() {
    let ([mut a, b], [_, at_b]) = pair(&[[1, 2]], [100, 200]);
    let early = AoIsns {
        remote: None,
        ..at_b
    };
    let mut sign = |isn: u32, seq, flags| {
        let mut segment = plain(SeqNum(seq), SeqNum(201), flags, 16);
        let isns = AoIsns {
            local: SeqNum(isn),
            remote: Some(SeqNum(200)),
        };
        assert!(a.sign(isns, &mut segment));
        segment
    };
    let cases = [
        (sign(100, 100, Flags::SYN | Flags::ACK), AoVerdict::Good),
        (sign(100, 100, Flags::SYN), AoVerdict::Good),
        (sign(0, 0, Flags::RST | Flags::ACK), AoVerdict::Good),
        (sign(100, 101, Flags::ACK), AoVerdict::Bad),
        (sign(100, 101, Flags::RST | Flags::ACK), AoVerdict::Bad),
    ];
    for (segment, verdict) in cases {
        assert_eq!(b.clone().verify(early, &segment), verdict);
    }
    // A listener: what its SYN cookie's ACK says, and nothing that a reset could say.
    let ack = sign(100, 101, Flags::ACK);
    assert_eq!(ao_isns_of(&ack), Some(at_b));
    assert_eq!(b.clone().verify(at_b, &ack), AoVerdict::Good);
    assert_eq!(ao_isns_of(&sign(100, 101, Flags::RST)), None);
}

#[test]
fn keys_and_their_limits() {
    let make = |secret: &[u8]| AoKey::new(AoAlgorithm::HmacSha1, secret, 1, 2);
    assert_eq!(make(b""), None);
    assert_eq!(make(&[0; AO_KEY_MAX + 1]), None);
    let key = make(&[9; AO_KEY_MAX]).unwrap();
    assert_eq!(key.secret(), [9; AO_KEY_MAX]);
    assert_eq!((key.with_mac_len(0), key.with_mac_len(17)), (None, None));
    let ends = |key| {
        let ends = (([1; 4], 1).into(), ([2; 4], 2).into());
        AoSession::new(ends.0, ends.1, [Arc::new(key)], (None, None)).unwrap()
    };
    for (len, room) in [(1, 8), (4, 8), (12, 16), (13, 20), (16, 20)] {
        assert_eq!(ends(key.with_mac_len(len).unwrap()).room(), room);
    }
    let mut session = ends(key);
    let other = |send, receive| {
        let key = AoKey::new(AoAlgorithm::HmacSha1, b"k", send, receive);
        Arc::new(key.unwrap())
    };
    assert!(!session.add(other(1, 9)) && !session.add(other(9, 2)) && session.add(other(9, 9)));
    assert_eq!(session.keys().count(), 2);
    let none: [Arc<AoKey>; 0] = [];
    let (a, b) = (([1; 4], 1).into(), ([2; 4], 2).into());
    assert!(AoSession::new(a, b, none, (None, None)).is_none());
    assert!(
        !alloc::format!("{key:?}").contains("9, 9"),
        "no secrets in logs"
    );
}
