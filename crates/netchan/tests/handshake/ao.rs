//! TCP-AO (RFC 5925) between two stacks, and with a peer made by hand that signs, or does not.

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    sync::Arc,
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::wire,
    socket::{
        AoAlgorithm, AoChoice, AoInfo, AoKey, AoPeerKey, Domain, Kind, Md5Key, ReceiveFlags,
        Socket, SocketOption,
    },
};
use proto::{
    tcp::{AoIsns, AoSession, AoVerdict, Config, SynCookies},
    wire::{
        checksum::Partial,
        icmpv4,
        ipv4::{self, Protocol},
        tcp::{Flags, Header, Options, SeqNum, fill_checksum},
    },
};

use crate::raw::{PEER, PORT, Raw, SERVER, Segment, header};

fn key(algorithm: AoAlgorithm, secret: &str, send_id: u8, receive_id: u8) -> AoKey {
    AoKey::new(algorithm, secret.as_bytes(), send_id, receive_id).unwrap()
}

/// For every host of a family.
fn for_all(v6: bool, key: AoKey) -> AoPeerKey {
    let peer: IpAddr = if v6 { "::" } else { "0.0.0.0" }.parse().unwrap();
    AoPeerKey {
        peer,
        prefix: 0,
        key,
    }
}

fn counter(net: &Net, name: &str) -> u64 {
    let rows = net.show("counters").unwrap();
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == name).expect(name);
    row["value"].as_u64().unwrap()
}

/// Two stacks, one that connects and one that listens.
struct Two {
    clock: Clock,
    nets: [Net; 2],
    v6: bool,
}

impl Two {
    fn new(v6: bool, syn_cookies: SynCookies) -> Self {
        let clock = Clock::new_virtual();
        let (a, b) = wire::pair(&wire::Options::default());
        let start = |link, v4: &str, v6: &str| {
            let builder = Net::builder().clock(clock.clone()).link_with(link);
            let builder = builder.address(v4).unwrap().address(v6).unwrap();
            let config = Config {
                syn_cookies,
                ..Config::default()
            };
            let builder = builder.threads(Threads::Caller).seed(7).tcp(config);
            builder.start().unwrap()
        };
        let nets = [
            start(Box::new(a), "10.0.0.1/24", "fd00::1/64"),
            start(Box::new(b), "10.0.0.2/24", "fd00::2/64"),
        ];
        Self { clock, nets, v6 }
    }

    fn turn(&self) {
        for _ in 0..8 {
            self.clock.advance(Duration::from_millis(1));
            for net in &self.nets {
                net.poll();
            }
        }
    }

    fn target(&self) -> SocketAddr {
        let target = if self.v6 {
            "[fd00::2]:179"
        } else {
            "10.0.0.2:179"
        };
        target.parse().unwrap()
    }

    fn socket(&self, of: usize, keys: &[AoKey]) -> Socket {
        let domain = if self.v6 { Domain::V6 } else { Domain::V4 };
        let socket = Socket::new(&self.nets[of], domain, Kind::Stream).unwrap();
        for key in keys {
            let key = for_all(self.v6, *key);
            socket.ao_add_key(&key, false, false).unwrap();
        }
        socket
    }

    /// A socket that has begun to connect, and one that listens, with these keys.
    fn begin(&self, keys: [&[AoKey]; 2]) -> [Socket; 2] {
        let listener = self.socket(1, keys[1]);
        listener.bind(self.target()).unwrap();
        listener.listen(8).unwrap();
        let client = self.socket(0, keys[0]);
        let _ = client.connect(self.target());
        self.turn();
        [client, listener]
    }

    /// Says something; what arrives.
    fn say(&self, from: &Socket, to: &Socket, text: &[u8]) -> Vec<u8> {
        let (mut sent, mut heard, mut part) = (0, Vec::new(), vec![0; 65536]);
        for _ in 0..400 {
            if sent < text.len() {
                sent += match from.send(&[IoSlice::new(&text[sent..])], None) {
                    Ok(n) => n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
                    Err(e) => panic!("{e}"),
                };
            }
            self.turn();
            let flags = ReceiveFlags::default();
            while let Ok(got) = to.receive(&mut [IoSliceMut::new(&mut part)], flags) {
                heard.extend_from_slice(&part[..got.len]);
                if got.len == 0 {
                    break;
                }
            }
            if heard.len() == text.len() {
                break;
            }
        }
        heard
    }

    /// Whether nothing was dropped, and each segment that came was verified.
    fn is_clean(&self) {
        for net in &self.nets {
            let drops = ["required", "key_not_found", "bad", "icmp"];
            for name in drops.map(|name| format!("drop_tcp_ao_{name}")) {
                assert_eq!(counter(net, &name), 0, "{name}");
            }
            assert_eq!(counter(net, "tcp_ao_good"), counter(net, "tcp_segments_in"));
        }
    }
}

fn text() -> Vec<u8> {
    (0..40_000_u32).map(|n| (n % 253) as u8).collect()
}

/// RFC 5926 §3: both algorithms, in both families, with options covered and without, with a SYN queue and with cookies; to the end, and
/// TIME-WAIT's answers too.
#[test]
fn bytes_pass_signed() {
    for case in 0..16 {
        let bit = |n: u8| case >> n & 1 == 1;
        let algorithm = [AoAlgorithm::HmacSha1, AoAlgorithm::Aes128Cmac][usize::from(bit(0))];
        let cookies = [SynCookies::WhenFull, SynCookies::Always][usize::from(bit(3))];
        let two = Two::new(bit(1), cookies);
        let keys = [(1, 2), (2, 1)].map(|(send, receive)| {
            let key = key(algorithm, "bgp secret", send, receive);
            if bit(2) { key.excluding_options() } else { key }
        });
        let [client, listener] = two.begin([&keys[..1], &keys[1..]]);
        let (server, _) = listener.accept().expect("a connection");
        assert_eq!(two.say(&client, &server, &text()), text(), "{case}");
        assert_eq!(two.say(&server, &client, &text()), text(), "{case}");
        client.shutdown(Shutdown::Write).unwrap();
        two.turn();
        drop(server);
        two.turn();
        drop(client);
        two.turn();
        two.is_clean();
        let cookies = counter(&two.nets[1], "tcp_syn_cookies_taken");
        assert_eq!(cookies, u64::from(bit(3)));
    }
}

/// Another secret, another id, or none at all: no connection, not even a word, and a count of each (RFC 5925 §7.5).
#[test]
fn a_peer_with_another_key_or_none_gets_no_connection() {
    let sha1 = |secret: &str, send, receive| key(AoAlgorithm::HmacSha1, secret, send, receive);
    let cases = [
        (vec![], "drop_tcp_ao_required"),
        (vec![sha1("other", 1, 2)], "drop_tcp_ao_bad"),
        (vec![sha1("secret", 3, 2)], "drop_tcp_ao_key_not_found"),
        (
            vec![key(AoAlgorithm::Aes128Cmac, "secret", 1, 2)],
            "drop_tcp_ao_bad",
        ),
        (
            vec![sha1("secret", 1, 2).with_mac_len(16).unwrap()],
            "drop_tcp_ao_bad",
        ),
    ];
    for (keys, dropped) in cases {
        let two = Two::new(false, SynCookies::WhenFull);
        let [_client, listener] = two.begin([&keys, &[sha1("secret", 2, 1)]]);
        assert!(listener.accept().is_err(), "{dropped}");
        assert_eq!(counter(&two.nets[1], dropped), 1, "{dropped}");
        assert_eq!(counter(&two.nets[1], "tcp_segments_out"), 0, "{dropped}");
    }
    // A listener that asks for a key of every peer; one that does not care for what it has no key for (RFC 5925 §7.5).
    for required in [false, true] {
        for keys in [vec![], vec![sha1("secret", 1, 2)]] {
            let two = Two::new(false, SynCookies::WhenFull);
            let listener = two.socket(1, &[]);
            let info = AoInfo {
                required,
                ..AoInfo::default()
            };
            listener.set_ao_info(info, false).unwrap();
            listener.bind(two.target()).unwrap();
            listener.listen(8).unwrap();
            let client = two.socket(0, &keys);
            let _ = client.connect(two.target());
            two.turn();
            // A peer that has a key takes no answer without one.
            assert_eq!(listener.accept().is_ok(), !required && keys.is_empty());
            let name = if keys.is_empty() {
                "drop_tcp_ao_required"
            } else {
                "drop_tcp_ao_key_not_found"
            };
            assert_eq!(counter(&two.nets[1], name), u64::from(required));
        }
    }
}

/// RFC 5925 §8.1: a new key beside the old one, then asked for, then used by both, then the old one goes.
#[test]
fn keys_roll_over_without_a_break() {
    let two = Two::new(false, SynCookies::WhenFull);
    let old = [(1, 2), (2, 1)].map(|(s, r)| key(AoAlgorithm::HmacSha1, "old", s, r));
    let new = [(5, 6), (6, 5)].map(|(s, r)| key(AoAlgorithm::Aes128Cmac, "new", s, r));
    let new = new.map(|key| key.with_mac_len(16).unwrap());
    let [client, listener] = two.begin([&old[..1], &old[1..]]);
    let (server, _) = listener.accept().unwrap();
    let ids = |socket: &Socket| {
        let AoChoice { current, next } = socket.ao_info().unwrap().keys;
        (current.unwrap(), next.unwrap())
    };
    let ask = |next| AoChoice {
        current: None,
        next: Some(next),
    };
    assert_eq!((ids(&client), ids(&server)), ((1, 2), (2, 1)));
    client
        .ao_add_key(&for_all(false, new[0]), false, false)
        .unwrap();
    server
        .ao_add_key(&for_all(false, new[1]), false, false)
        .unwrap();
    let taken = client.ao_add_key(&for_all(false, new[0]), false, false);
    assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    assert_eq!(two.say(&client, &server, &text()), text());
    let info = client.ao_info().unwrap();
    client
        .set_ao_info(
            AoInfo {
                keys: ask(6),
                ..info
            },
            false,
        )
        .unwrap();
    assert_eq!(two.say(&client, &server, &text()), text());
    assert_eq!((ids(&client), ids(&server)), ((1, 6), (6, 1)));
    let everyone = ("0.0.0.0".parse().unwrap(), 0);
    let busy = server.ao_delete_key(everyone, (2, 1), AoChoice::default());
    assert_eq!(busy.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    server.ao_delete_key(everyone, (2, 1), ask(5)).unwrap();
    // The server has no old key any more: the client has not heard yet which one it wants.
    let lost = counter(&two.nets[1], "drop_tcp_ao_key_not_found");
    assert_eq!(two.say(&server, &client, &text()), text());
    assert_eq!((ids(&client), ids(&server)), ((5, 6), (6, 5)));
    client
        .ao_delete_key(everyone, (1, 2), AoChoice::default())
        .unwrap();
    assert_eq!(two.say(&client, &server, &text()), text());
    assert_eq!(counter(&two.nets[1], "drop_tcp_ao_key_not_found"), lost);
    let keys = server.ao_keys().unwrap();
    let [only] = keys[..] else { panic!("{keys:?}") };
    assert!(only.is_current && only.is_next && only.bad == 0 && only.good > 28);
    assert_eq!(only.key, for_all(false, new[1]));
    assert!(server.ao_info().unwrap().counts.good > only.good);
    two.is_clean();
}

#[test]
fn what_a_socket_refuses() {
    let two = Two::new(false, SynCookies::WhenFull);
    let own = key(AoAlgorithm::HmacSha1, "k", 1, 2);
    let [client, listener] = two.begin([&[], &[]]);
    let code = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let add = |socket: &Socket, current| socket.ao_add_key(&for_all(false, own), current, false);
    assert_eq!(code(add(&client, false)), Some(libc::EISCONN));
    assert_eq!(code(add(&listener, true)), Some(libc::EINVAL));
    let none = listener.ao_delete_key(([0; 4].into(), 0), (1, 2), AoChoice::default());
    assert_eq!(code(none), Some(libc::ENOENT));
    let fresh = two.socket(0, &[]);
    assert_eq!(code(fresh.ao_keys().map(|_| ())), Some(libc::ENOENT));
    let md5 = SocketOption::Md5Key {
        peer: [10, 0, 0, 2].into(),
        prefix: 32,
        key: Md5Key::new(b"md5"),
    };
    fresh.set_option(md5).unwrap();
    assert_eq!(code(add(&fresh, false)), Some(libc::EKEYREJECTED));
    let other = two.socket(0, &[own]);
    assert_eq!(code(other.set_option(md5)), Some(libc::EKEYREJECTED));
    let unknown = AoInfo {
        keys: AoChoice {
            current: Some(9),
            next: None,
        },
        ..AoInfo::default()
    };
    assert_eq!(code(other.set_ao_info(unknown, false)), Some(libc::ENOENT));
    let datagram = Socket::new(&two.nets[0], Domain::V4, Kind::Datagram).unwrap();
    assert_eq!(code(add(&datagram, false)), Some(libc::ENOPROTOOPT));
}

/// A peer made by hand, with a session of its own.
struct Signer {
    raw: Raw,
    listener: Socket,
    session: AoSession,
    isns: AoIsns,
    seq: SeqNum,
    ack: SeqNum,
}

const OWN_PORT: u16 = 4000;

impl Signer {
    /// Connected.
    fn new(info: AoInfo) -> (Self, Socket) {
        let raw = Raw::new(|builder| builder);
        let listener = Socket::new(&raw.net, Domain::V4, Kind::Stream).unwrap();
        let theirs = key(AoAlgorithm::HmacSha1, "by hand", 2, 1);
        listener
            .ao_add_key(&for_all(false, theirs), false, false)
            .unwrap();
        listener.set_ao_info(info, false).unwrap();
        listener.bind((SERVER, PORT).into()).unwrap();
        listener.listen(8).unwrap();
        let session = AoSession::new(
            (PEER, OWN_PORT).into(),
            (SERVER, PORT).into(),
            [Arc::new(key(AoAlgorithm::HmacSha1, "by hand", 1, 2))],
            (None, None),
        );
        let mut peer = Self {
            raw,
            listener,
            session: session.unwrap(),
            isns: AoIsns {
                local: SeqNum(u32::MAX - 2),
                remote: None,
            },
            seq: SeqNum(u32::MAX - 2),
            ack: SeqNum(0),
        };
        let answers = peer.ask(Flags::SYN, b"");
        let [answer] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(answer.header.flags.contains(Flags::SYN | Flags::ACK));
        assert_eq!(peer.verify(answer), AoVerdict::Good);
        peer.isns.remote = Some(answer.header.seq);
        (peer.seq, peer.ack) = (peer.seq + 1, answer.header.seq + 1);
        assert!(peer.ask(Flags::ACK, b"").is_empty());
        let (server, _) = peer.listener.accept().unwrap();
        (peer, server)
    }

    fn segment(&mut self, flags: Flags, text: &[u8], signed: bool) -> Vec<u8> {
        let header = Header {
            options: Options {
                free: if signed { 16 } else { 0 },
                ..Options::default()
            },
            ..header(OWN_PORT, flags, self.seq.0, self.ack.0)
        };
        let mut bytes = vec![0; header.len()];
        header.emit(&mut bytes);
        bytes.extend_from_slice(text);
        if signed {
            assert!(self.session.sign(self.isns, &mut bytes));
        }
        self.sum(bytes)
    }

    fn sum(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes[16..18].fill(0);
        fill_checksum(&mut bytes, Partial::ZERO, 0, PEER.into(), SERVER.into());
        bytes
    }

    fn put(&mut self, bytes: &[u8]) -> Vec<Segment> {
        self.raw.put_payload(PEER, Protocol::TCP, bytes);
        self.raw.turn()
    }

    /// Sends a signed segment; what comes back.
    fn ask(&mut self, flags: Flags, text: &[u8]) -> Vec<Segment> {
        let bytes = self.segment(flags, text, true);
        self.put(&bytes)
    }

    fn verify(&mut self, segment: &Segment) -> AoVerdict {
        self.session.verify(self.isns, &segment.bytes)
    }

    /// An ICMP error about what the stack sent from `seq` on.
    fn icmp(&mut self, code: u8, mtu: u16, seq: SeqNum) {
        let mut quote = [0; 28];
        ipv4::Header::new(Protocol::TCP, SERVER, PEER).emit(1000, &mut quote);
        let [_, _, ports @ ..] = [0, 0, PORT, OWN_PORT].map(u16::to_be_bytes);
        quote[20..24].copy_from_slice(&ports.concat());
        quote[24..].copy_from_slice(&seq.0.to_be_bytes());
        let message = icmpv4::Message::DestinationUnreachable { code, mtu };
        let mut bytes = [0; 64];
        let len = message.emit(&quote, &mut bytes);
        self.raw
            .put_payload(Ipv4Addr::new(10, 0, 0, 9), Protocol::ICMP, &bytes[..len]);
        self.raw.turn();
    }
}

/// The sequence numbers pass zero within the first bytes (RFC 5925 §6.2); resets and text that is not signed, or signed wrong, change
/// nothing; one that is signed ends it.
#[test]
fn only_what_is_signed_counts() {
    let (mut peer, server) = Signer::new(AoInfo::default());
    for text in [&b"before"[..], b"after zero"] {
        let answers = peer.ask(Flags::ACK | Flags::PSH, text);
        peer.seq = peer.seq + u32::try_from(text.len()).unwrap();
        let answers = if answers.is_empty() {
            peer.raw.wait(Duration::from_millis(300))
        } else {
            answers
        };
        assert_eq!(peer.verify(&answers[0]), AoVerdict::Good);
        assert_eq!(answers[0].header.ack, peer.seq);
    }
    assert_eq!(peer.seq.0, 14);
    let unsigned = peer.segment(Flags::RST | Flags::ACK, b"", false);
    let mut forged = peer.segment(Flags::RST | Flags::ACK, b"", true);
    forged[35] ^= 1;
    let forged = peer.sum(forged);
    let text = peer.segment(Flags::ACK, b"unsigned", false);
    for bytes in [&unsigned, &forged, &text] {
        assert!(peer.put(bytes).is_empty());
    }
    let mut buf = [0; 64];
    let flags = ReceiveFlags::default();
    let got = server.receive(&mut [IoSliceMut::new(&mut buf)], flags);
    assert_eq!(&buf[..got.unwrap().len], b"beforeafter zero");
    let drops = ["required", "bad"].map(|name| peer.raw.counter(&format!("drop_tcp_ao_{name}")));
    assert_eq!(drops, [2, 1]);
    let counts = server.ao_info().unwrap().counts;
    assert_eq!((counts.missing, counts.bad), (2, 1));
    peer.ask(Flags::RST | Flags::ACK, b"");
    let end = server.receive(&mut [IoSliceMut::new(&mut buf)], flags);
    assert_eq!(end.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
    // No connection is there any more, and without one nothing can be signed (RFC 5925 §7.7).
    assert!(peer.ask(Flags::ACK, b"who?").is_empty());
    assert_eq!(peer.raw.counter("tcp_resets_out"), 0);
}

/// A record in TIME-WAIT verifies and signs.
#[test]
fn time_wait_answers_signed() {
    let (mut peer, server) = Signer::new(AoInfo::default());
    server.shutdown(Shutdown::Write).unwrap();
    let fin = peer.raw.turn();
    assert!(fin[0].header.flags.contains(Flags::FIN));
    assert_eq!(peer.verify(&fin[0]), AoVerdict::Good);
    peer.ack = fin[0].header.seq + 1;
    for round in 0..2 {
        let bare = peer.segment(Flags::FIN | Flags::ACK, b"", false);
        assert!(peer.put(&bare).is_empty(), "{round}");
        let answers = peer.ask(Flags::FIN | Flags::ACK, b"");
        assert_eq!(peer.verify(&answers[0]), AoVerdict::Good, "{round}");
        assert_eq!(answers[0].header.ack, peer.seq + 1);
    }
    assert_eq!(peer.raw.counter("drop_tcp_ao_required"), 2);
    // A new connection takes its place (RFC 9293 MAY-2), signed as well.
    let later = peer.seq + 100_000;
    (peer.isns, peer.seq) = (
        AoIsns {
            local: later,
            remote: None,
        },
        later,
    );
    let answers = peer.ask(Flags::SYN, b"");
    assert!(answers[0].header.flags.contains(Flags::SYN | Flags::ACK));
    assert_eq!(peer.verify(&answers[0]), AoVerdict::Good);
    drop(server);
}

/// RFC 5925 §7.8: by default ICMP neither ends a connection nor cuts its segments.
#[test]
fn icmp_counts_only_if_asked() {
    for accept_icmps in [false, true] {
        let info = AoInfo {
            accept_icmps,
            ..AoInfo::default()
        };
        let (mut peer, server) = Signer::new(info);
        let text = vec![7; 1000];
        server.send(&[IoSlice::new(&text)], None).unwrap();
        let sent = peer.raw.turn();
        assert_eq!(peer.verify(&sent[0]), AoVerdict::Good);
        let mss = |socket: &Socket| match socket.option(SocketOption::MaxSegment(0)) {
            Ok(SocketOption::MaxSegment(mss)) => mss,
            other => panic!("{other:?}"),
        };
        let before = mss(&server);
        for (code, mtu) in [(2, 0), (3, 0), (4, 500)] {
            peer.icmp(code, mtu, sent[0].header.seq);
        }
        let dropped = peer.raw.counter("drop_tcp_ao_icmp");
        assert_eq!(dropped, if accept_icmps { 0 } else { 3 });
        assert_eq!(server.ao_info().unwrap().counts.icmp, dropped);
        // Of codes that pass by default.
        peer.icmp(1, 0, sent[0].header.seq);
        assert_eq!(peer.raw.counter("drop_tcp_ao_icmp"), dropped);
        assert_eq!(mss(&server) < before, accept_icmps, "{before}");
    }
}
