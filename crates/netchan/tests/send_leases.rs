//! Answers written right into memory of the send queue: `TcpStream::reserve` and `commit`, in each regime.

use std::{
    io::{self, IoSlice, Read, Write},
    net::Shutdown,
    thread,
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, TcpStream, Threads,
    link::wire,
    socket::{Domain, Kind, Socket, SocketOption},
};

const PATIENCE: Duration = Duration::from_secs(20);

const REGIMES: [Regime; 6] = [
    Regime::Giant,
    Regime::Locked,
    Regime::PerCpu,
    Regime::DriverChannel,
    Regime::SocketChannel,
    Regime::AppChannel,
];

/// Two stacks, and both ends of a connection between them.
fn connection(regime: Regime) -> ([Net; 2], [TcpStream; 2]) {
    let (a, b) = wire::pair(&wire::Options::default());
    let start = |link, address: &str| {
        let builder = Net::builder().regime(regime).link_with(Box::new(link));
        builder.address(address).unwrap().start().unwrap()
    };
    let nets = [start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")];
    let listener = nets[1].tcp().listen("10.0.0.2:7").unwrap();
    let client = nets[0].tcp().connect("10.0.0.2:7").unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (nets, [client, server])
}

/// Byte number `at` of a text without a period that a chunk could hide.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]
}

/// Sends `len` bytes of the text from `from` on, by one lease; how many it took.
fn lend(stream: &TcpStream, from: usize, len: usize) -> usize {
    let mut lease = stream.reserve(len).unwrap();
    assert!((1..=len).contains(&lease.len()));
    let mut at = from;
    for slice in lease.slices_mut() {
        for place in slice.iter_mut() {
            *place = byte(at);
            at += 1;
        }
    }
    assert_eq!(at - from, lease.len());
    let n = lease.len();
    assert_eq!(stream.commit(lease, n).unwrap(), n);
    n
}

/// Leases of all sizes between ordinary writes, plain and vectored: the reader sees one stream.
#[test]
fn leases_and_writes_make_one_stream() {
    const TOTAL: usize = 6 << 20;
    for regime in REGIMES {
        println!("{regime}");
        let (_nets, [client, mut server]) = connection(regime);
        let sender = thread::spawn(move || {
            let (mut sent, mut round) = (0, 0_usize);
            let sizes = [1, 5000, 65_536, 60_000, 300_000, 65_535, 17, 131_072];
            while sent < TOTAL {
                let len = sizes[round % sizes.len()].min(TOTAL - sent);
                round += 1;
                if round % 5 != 0 {
                    sent += lend(&client, sent, len);
                    continue;
                }
                let text: Vec<u8> = (sent..sent + len.min(700)).map(byte).collect();
                let (front, back) = text.split_at(text.len() / 3);
                sent += (&client)
                    .write_vectored(&[IoSlice::new(front), IoSlice::new(back)])
                    .unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
            client
        });
        let (mut got, mut room) = (0, vec![0; 50_000]);
        loop {
            let n = server.read(&mut room).unwrap();
            if n == 0 {
                break;
            }
            for (at, &read) in (got..).zip(&room[..n]) {
                assert_eq!(read, byte(at), "{regime}: byte {at}");
            }
            got += n;
        }
        assert_eq!(got, TOTAL);
        drop(sender.join().unwrap());
    }
}

/// A part of a lease, nothing of it, one that is dropped, and two at a time.
#[test]
fn what_is_not_committed_is_not_sent() {
    for regime in REGIMES {
        println!("{regime}");
        let (_nets, [client, mut server]) = connection(regime);
        drop(client.reserve(1000).unwrap());
        let lease = client.reserve(1000).unwrap();
        assert_eq!(client.commit(lease, 0).unwrap(), 0);
        let mut first = client.reserve(100_000).unwrap();
        let mut second = client.reserve(100_000).unwrap();
        assert_eq!(first.write(0, b"one "), 4);
        assert_eq!(second.write(0, b"two "), 4);
        assert_eq!(client.commit(second, 4).unwrap(), 4);
        assert_eq!(client.commit(first, 4).unwrap(), 4);
        (&client).write_all(b"three").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "two one three");
    }
}

/// The connection ends while the program still writes.
#[test]
fn close_in_between() {
    for regime in REGIMES {
        println!("{regime}");
        let (_nets, [client, server]) = connection(regime);
        let lease = client.reserve(1000).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let refused = client.commit(lease, 1000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        let refused = client.reserve(1000).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        // A lease outlives its stream.
        let mut lease = server.reserve(1000).unwrap();
        drop(server);
        assert_eq!(lease.write(0, &[1; 2000]), 1000);
        assert!(client.commit(lease, 1000).is_err(), "of another stream");
    }
}

/// A program in virtual time that does not wait: no more is lent than the buffer has room for, and a full one lends nothing.
#[test]
fn full_buffer_lends_nothing() {
    let (a, b) = wire::pair(&wire::Options::default());
    let clock = Clock::new_virtual();
    let start = |link, address: &str| {
        let builder = Net::builder().link_with(Box::new(link)).seed(1);
        let builder = builder.threads(Threads::Caller).clock(clock.clone());
        builder.address(address).unwrap().start().unwrap()
    };
    let nets = [start(a, "10.0.0.1/24"), start(b, "10.0.0.2/24")];
    let turn = || {
        for _ in 0..50 {
            clock.advance(Duration::from_micros(50));
            nets.iter().for_each(|net| _ = net.poll());
        }
    };
    let listener = Socket::new(&nets[1], Domain::V4, Kind::Stream).unwrap();
    listener.bind("10.0.0.2:7".parse().unwrap()).unwrap();
    listener.listen(1).unwrap();
    let client = Socket::new(&nets[0], Domain::V4, Kind::Stream).unwrap();
    let refused = client.reserve(10, None).unwrap_err();
    assert_eq!(
        refused.kind(),
        io::ErrorKind::BrokenPipe,
        "as a write to it"
    );
    client.set_option(SocketOption::SendBuffer(20_000)).unwrap();
    let _ = client.connect("10.0.0.2:7".parse().unwrap()); // under way
    let early = client.reserve(10, None).unwrap_err();
    assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
    turn();
    let (server, _) = listener.accept().unwrap();
    let mut sent = 0;
    let full = loop {
        match client.reserve(1 << 20, None) {
            Ok(lease) => {
                let n = lease.len();
                sent += client.commit(lease, n).unwrap();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert!((20_000..=80_000).contains(&sent), "{sent}");
    turn();
    assert_eq!(server.available(), sent);
    assert!(client.reserve(100, None).unwrap().len() == 100);
    let datagram = Socket::new(&nets[0], Domain::V4, Kind::Datagram).unwrap();
    let refused = datagram.reserve(10, None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
}
