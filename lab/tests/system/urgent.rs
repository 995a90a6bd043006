//! Linux and an urgent byte that is late, with segments made by hand. Where it waits for the byte and a segment comes first that begins no more than a
//! header's length behind it, Linux takes a byte of that segment's header for it: `tcp_urg` (net/ipv4/tcp_input.c) counts from the header's beginning
//! and asks only whether the place lies before the segment's end. A peer can do nothing about it; the differential cases go by it (`Group::random`).

use std::{
    collections::VecDeque,
    fs,
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use netchan::{
    Clock,
    link::{Queue, specification},
    packet::Packet,
};
use percore::slab::Slab;
use proto::wire::tcp::{Flags, Header};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use crate::{
    Case, Outcome,
    frames::{Ends, transport},
    inner::mac,
    place::{KERNEL, OURS, Place, SOON},
};

pub const CASES: &[Case] = &[("linux_and_a_late_urgent_byte", |_| late())];

/// Of the TAP: the kernel's end and ours.
const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:09"];

const PORT: u16 = 8000;
/// What our first text begins with, in every connection.
const BEGIN: u32 = 0x1000_0001;
/// Of every segment but the SYN: with timestamps.
const HEADER: usize = 32;
/// Where in the text the urgent byte is.
const URGENT: u32 = 5;

/// How far behind the urgent byte the early segment begins. Right behind it: the last byte of the echoed timestamp; a padding byte; the header's
/// first; and the first distance from which no header reaches.
const BEHIND: [u8; 4] = [1, 12, 32, 33];

fn late() -> Outcome {
    let place = Place::new()?;
    place.tap("nc0")?;
    place.ip(&["link", "set", "nc0", "address", MACS[0]])?;
    let ours = ["lladdr", MACS[1], "dev", "nc0"];
    place.ip(&[&["neigh", "replace", OURS[0]], &ours[..]].concat())?;
    let inner = place.inner(&["urgent", "tap:nc0,offload=off"])?;
    let said = inner.finish(SOON + SOON)?.success()?;
    println!("    {}", said.output.trim().replace('\n', "\n    "));
    Ok(())
}

/// The inner part: a listener of Linux's, and the TAP that leads to it.
pub fn inner(link: &str) -> Result<String, String> {
    let listener = TcpListener::bind((KERNEL[0], PORT)).map_err(|e| e.to_string())?;
    let mut peer = Peer::open(link)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut said = vec![format!("Linux {}", release.trim())];
    for behind in BEHIND {
        let got = one(&mut peer, &listener, behind);
        said.push(got.map_err(|e| format!("{behind} behind: {e}"))?);
    }
    Ok(said.join("\n"))
}

/// One connection: a segment announces the byte, one from behind it arrives, and then what is missing.
fn one(peer: &mut Peer, listener: &TcpListener, behind: u8) -> Result<String, String> {
    peer.connect()?;
    let (mut stream, _) = listener.accept().map_err(|e| e.to_string())?;
    let patience = stream.set_read_timeout(Some(SOON));
    patience.map_err(|e| e.to_string())?;
    // The pointer names the octet after the urgent one (RFC 9293 §3.8.5).
    let pointer = |from: u32| u16::try_from(URGENT + 1 - from).unwrap_or(0);
    let first = peer.message(BEGIN, Flags::ACK | Flags::URG, pointer(0), b"abc");
    peer.send(first)?;
    peer.hear("an acknowledgment", |h| h.ack.0 == BEGIN + 3)?;
    if take_urgent(&stream) != Err(Errno::AGAIN) {
        return Err("it does not wait for the byte".to_owned());
    }
    let at = BEGIN + URGENT + u32::from(behind);
    let early = peer.message(at, Flags::ACK, 0, b"xyz");
    let in_header = HEADER.checked_sub(behind.into());
    let wrong = in_header.map(|at| early[at]);
    let right = wrong.map_or(b'!', |wrong| !wrong);
    peer.send(early)?;
    // The byte is looked for before the text is taken, which this follows.
    peer.hear("a gap", |h| !h.options.sack.is_empty())?;
    let before = take_urgent(&stream);
    let fill = vec![b'-'; usize::from(behind) - 1];
    let missing = [b"de", &[right][..], &fill].concat();
    let missing = peer.message(BEGIN + 3, Flags::ACK | Flags::URG, pointer(3), &missing);
    peer.send(missing)?;
    peer.hear("no gap", |h| h.ack.0 == at + 3)?;
    let after = take_urgent(&stream);
    let in_line = [b"abcde", &fill[..], b"xyz"].concat();
    let mut got = vec![0; in_line.len()];
    stream.read_exact(&mut got).map_err(|e| e.to_string())?;
    if got != in_line {
        return Err(format!("in line: {got:?}, not {in_line:?}"));
    }
    match (before, after) {
        (Err(Errno::AGAIN), Ok(byte)) if byte == right => {
            Ok(format!("{behind} behind: it waits for the right byte"))
        }
        (Ok(byte), Err(Errno::INVAL)) if Some(byte) == wrong => Ok(format!(
            "{behind} behind: it takes byte {} of the header, {byte:#04x}, for {right:#04x}",
            HEADER - usize::from(behind)
        )),
        _ => Err(format!(
            "it takes {before:x?}, then {after:x?}: neither {right:#04x} nor {wrong:x?}"
        )),
    }
}

/// recv(2) with MSG_OOB.
fn take_urgent(stream: &TcpStream) -> Result<u8, Errno> {
    let mut byte = [0];
    let flags = RecvFlags::OOB | RecvFlags::DONTWAIT;
    recv(stream, &mut byte, flags).map(|_| byte[0])
}

/// A TCP that says what it is told to, at our end of the TAP.
struct Peer {
    link: Queue,
    slab: Slab,
    ends: Ends,
    port: u16,
    /// Linux's next octet, and its timestamp to echo (RFC 7323 §3).
    ack: u32,
    echo: u32,
}

impl Peer {
    fn open(link: &str) -> Result<Self, String> {
        let specification = specification::parse(link).map_err(|e| e.to_string())?;
        let link = specification::open(&specification, &Clock::Real).map_err(|e| e.to_string())?;
        let slab = Slab::new(1024, link.properties().frame_max.max(2048));
        let address = |text: &str| text.parse::<Ipv4Addr>().map(|ip| ip.octets());
        let address = |text| address(text).map_err(|e| e.to_string());
        Ok(Self {
            slab: slab.map_err(|e| e.to_string())?,
            ends: Ends {
                source_mac: mac(MACS[1])?,
                source: address(OURS[0])?,
                target: address(KERNEL[0])?,
                ..Ends::new(mac(MACS[0])?)
            },
            link: Queue::of(link).map_err(|e| e.to_string())?,
            port: 20_000,
            ack: 0,
            echo: 0,
        })
    }

    /// A handshake, from a port of its own, with timestamps and selective acknowledgment.
    fn connect(&mut self) -> Outcome {
        (self.port, self.ack, self.echo) = (self.port + 1, 0, 0);
        let syn = self.message(BEGIN - 1, Flags::SYN, 0, &[]);
        self.send(syn)?;
        let answer = self.hear("a SYN-ACK", |h| h.flags.contains(Flags::SYN))?;
        let timestamps = answer.options.timestamps;
        (self.ack, self.echo) = (
            answer.seq.0.wrapping_add(1),
            timestamps.ok_or("no timestamps")?.value,
        );
        let ack = self.message(BEGIN, Flags::ACK, 0, &[]);
        self.send(ack)
    }

    /// A segment, without its checksum.
    fn message(&self, sequence: u32, flags: Flags, urgent: u16, text: &[u8]) -> Vec<u8> {
        let mut options = match flags {
            Flags::SYN => vec![2, 4, 5, 180, 4, 2], // largest segment, selective acknowledgment
            _ => vec![1, 1],
        };
        options.extend([8, 10, 0, 0, 0, 1]);
        options.extend(self.echo.to_be_bytes());
        let mut message = [self.port, PORT].map(u16::to_be_bytes).concat();
        message.extend([sequence, self.ack].map(u32::to_be_bytes).concat());
        let words = u16::try_from(5 + options.len() / 4).unwrap_or(15);
        let fields = [words << 12 | flags.0, u16::MAX, 0, urgent];
        message.extend(fields.map(u16::to_be_bytes).concat());
        message.extend(options);
        message.extend(text);
        message
    }

    fn send(&mut self, message: Vec<u8>) -> Outcome {
        let frame = transport(&self.ends, false, 6, 16, message);
        let buffer = self.slab.alloc().ok_or("no buffer")?;
        let mut packet = Packet::new(buffer, 0);
        packet.room_mut()[..frame.len()].copy_from_slice(&frame);
        packet.set_len(frame.len());
        let mut one = VecDeque::from([packet]);
        let sent = self.link.tx.transmit(Clock::Real.now(), &mut one);
        sent.map(drop).map_err(|e| e.to_string())
    }

    /// The first segment to come that is `wanted`.
    #[allow(clippy::disallowed_methods)] // a patience in the machine's time
    fn hear(&mut self, what: &str, wanted: impl Fn(&Header) -> bool) -> Result<Header, String> {
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            let mut burst = VecDeque::new();
            let now = Clock::Real.now();
            let came = (self.link.rx).receive(now, &mut self.slab, &mut burst, 64);
            came.map_err(|e| e.to_string())?;
            let mut heard = (burst.iter()).filter_map(|p| segment_to(p.bytes(), self.port));
            if let Some(header) = heard.find(&wanted) {
                return Ok(header);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("no answer: {what}"))
    }
}

/// The header of the TCP segment to this port, if the frame holds one.
fn segment_to(frame: &[u8], port: u16) -> Option<Header> {
    let is_tcp = frame.get(12..14)? == [8, 0] && frame.get(23)? == &6;
    let at = 14 + usize::from(frame.get(14)? & 15) * 4;
    let (header, _) = Header::parse(frame.get(at..)?).ok()?;
    (is_tcp && header.destination_port == port).then_some(header)
}
