//! What the wire layer costs per packet: sums, parse, emit; smoltcp beside it, in the same run.
//!
//! `cargo bench -p proto --bench wire [name]`. Each figure is the best of many batches of some
//! 10 µs: on a machine that others use as well, the best batch is the undisturbed one.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use proto::wire::checksum::{self, Partial};
use proto::wire::tcp::{self, Flags, Header, Options, SeqNum, Timestamps};
use proto::wire::{Protocol, ethernet, ipv4};
use smoltcp::wire as peer;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Batches tried for each figure.
const BATCHES: u32 = 2000;

/// Runs `work` in batches and prints the best and the median time of one turn.
#[allow(clippy::disallowed_methods)] // a bench is where the clock is read
fn bench<T>(name: &str, bytes: usize, mut work: impl FnMut() -> T) {
    if let Some(wanted) = std::env::args().skip(1).find(|arg| !arg.starts_with('-'))
        && !name.contains(&wanted)
    {
        return;
    }
    let mut batch = |turns: u32| {
        let start = Instant::now();
        for _ in 0..turns {
            black_box(work());
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
    };
    let guess = (0..20).map(|_| batch(100)).fold(f64::INFINITY, f64::min);
    let turns = (1..2000)
        .find(|turns| f64::from(*turns) * guess > 10_000.0)
        .unwrap_or(2000);
    let mut times: Vec<f64> = (0..BATCHES).map(|_| batch(turns)).collect();
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    print!("{name:32} {best:9.2} ns   median {median:9.2} ns");
    if bytes > 0 {
        print!(
            "   {:6.1} GB/s",
            f64::from(u32::try_from(bytes).unwrap_or(0)) / best
        );
    }
    println!();
}

fn sums() {
    let bytes: Vec<u8> = (0..65_536)
        .map(|i| u8::try_from(i * 31 % 251).unwrap_or(0))
        .collect();
    let mut to = vec![0; bytes.len()];
    for len in [8, 20, 32, 40, 60, 64, 536, 1460, 9000, 65_536] {
        let part = &bytes[..len];
        bench(&format!("sum {len}"), len, || {
            checksum::checksum(black_box(part))
        });
    }
    for len in [8, 20, 40, 60, 64, 536, 1460, 9000, 65_536] {
        let part = &bytes[..len];
        bench(&format!("copy_and_sum {len}"), len, || {
            checksum::finish(checksum::copy_and_sum(
                black_box(part),
                black_box(&mut to[..len]),
            ))
        });
    }
    for len in [60, 1460, 65_536] {
        let part = &bytes[..len];
        bench(&format!("copy alone {len}"), len, || {
            black_box(&mut to[..len]).copy_from_slice(black_box(part));
        });
    }
}

/// A data segment's header as established connections send it.
fn header() -> Header {
    Header {
        source_port: 40_000,
        destination_port: 80,
        seq: SeqNum(0x0102_0304),
        ack: SeqNum(0x0506_0708),
        flags: Flags::ACK | Flags::PSH,
        window: 501,
        options: Options {
            timestamps: Some(Timestamps { value: 7, echo: 9 }),
            ..Options::NONE
        },
        ..Header::default()
    }
}

fn tcp_header() {
    let mut buf = [0; 64];
    let ours = header();
    let bare = Header {
        options: Options::NONE,
        ..ours
    };
    bench("tcp emit, no options", 0, || {
        black_box(&bare).emit(black_box(&mut buf))
    });
    bench("tcp emit, timestamps", 0, || {
        black_box(&ours).emit(black_box(&mut buf))
    });
    let len = ours.emit(&mut buf);
    bench("tcp parse, timestamps", 0, || {
        let (header, at) = Header::parse(black_box(&buf[..len])).ok()?;
        Some((
            header.seq,
            header.ack,
            header.window,
            header.options.timestamps,
            at,
        ))
    });
    bench("tcp fill checksum", 0, || {
        let header = black_box(&mut buf[..len]);
        tcp::fill_checksum(header, Partial::ZERO, 1448, IpAddr::V4(A), IpAddr::V4(B))
    });
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        ..ours.options
    };
    let syn = Header {
        flags: Flags::SYN,
        options,
        ..ours
    };
    bench("tcp emit, timestamps, checksum", 0, || {
        let (a, b) = (IpAddr::V4(A), IpAddr::V4(B));
        black_box(&ours).emit_with_checksum(black_box(&mut buf), Partial::ZERO, 1448, a, b)
    });
    bench("tcp emit, SYN", 0, || {
        black_box(&syn).emit(black_box(&mut buf))
    });
    let len = syn.emit(&mut buf);
    bench("tcp parse, SYN", 0, || {
        Header::parse(black_box(&buf[..len]))
    });
}

/// A whole acknowledgment: Ethernet, IPv4, TCP with timestamps, both checksums.
fn whole() {
    let mut frame = [0; 66];
    let mac = ethernet::MacAddr([2, 0, 0, 0, 0, 1]);
    let link = ethernet::Header::new(mac, mac, ethernet::EtherType::IPV4);
    let ip = ipv4::Header::new(Protocol::TCP, A, B);
    let ours = header();
    let emit = |frame: &mut [u8; 66]| {
        let at = black_box(&link).emit(frame);
        let at = at + black_box(&ip).emit(ours.len(), &mut frame[at..]);
        let (a, b) = (IpAddr::V4(A), IpAddr::V4(B));
        black_box(&ours).emit_with_checksum(&mut frame[at..], Partial::ZERO, 0, a, b)
    };
    emit(&mut frame);
    bench("ack emit", 0, || emit(black_box(&mut frame)));
    bench("ack parse", 0, || {
        let frame = black_box(&frame[..]);
        let (_, at) = ethernet::Header::parse(frame).ok()?;
        let packet = &frame[at..];
        let ip = ipv4::Header::parse(packet).ok()?;
        let segment = ip.payload(packet);
        if !tcp::verify_checksum(IpAddr::V4(ip.source), IpAddr::V4(ip.destination), segment) {
            return None;
        }
        let (tcp, _) = Header::parse(segment).ok()?;
        Some((ip.source, tcp.seq, tcp.ack, tcp.window))
    });
    bench("ack parse, smoltcp", 0, || {
        let caps = smoltcp::phy::ChecksumCapabilities::default();
        let link = peer::EthernetFrame::new_checked(black_box(&frame[..])).ok()?;
        let packet = peer::Ipv4Packet::new_checked(link.payload()).ok()?;
        let ip = peer::Ipv4Repr::parse(&packet, &caps).ok()?;
        let segment = peer::TcpPacket::new_checked(packet.payload()).ok()?;
        let (source, destination) = (ip.src_addr.into(), ip.dst_addr.into());
        let tcp = peer::TcpRepr::parse(&segment, &source, &destination, &caps).ok()?;
        Some((ip.src_addr, tcp.seq_number, tcp.ack_number, tcp.window_len))
    });
}

fn main() {
    sums();
    tcp_header();
    whole();
}
