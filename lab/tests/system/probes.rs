//! What port scanners send (`nmap -sS -sF -sN -sX -sA -sM -O` and odder), as frames made by hand: each probe gets the answer of RFC 9293 §3.10.7 for the
//! state it meets (CLOSED, LISTEN, SYN-RECEIVED, ESTABLISHED) or silence, nothing stays behind, and the server serves.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use netchan::{
    Clock,
    link::{Queue, specification},
    packet::Packet,
};
use percore::slab::Slab;

use crate::{
    Case, Outcome,
    frames::{Ends, Segment, arp, tcp, transport},
    hostile::{Target, mac_of},
    inner::mac,
    place::{Knobs, OURS, SOON, find},
    skips::skipped,
};

pub const CASES: &[Case] = &[("probes_get_their_answers", probes)];

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;
const ECE: u8 = 64;
const CWR: u8 = 128;

const OPEN: u16 = 8000;
const CLOSED: u16 = 1;
/// Of every probe.
const SEQUENCE: u32 = 0x1020_3040;
const ACKNOWLEDGED: u32 = 0x5060_7080;

/// What a probe gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Silence,
    /// The second step of a handshake.
    SynAck,
    /// `<SEQ=SEG.ACK><CTL=RST>`
    Reset,
    /// `<SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>`
    ResetAck,
}

use Answer::{Reset, ResetAck, Silence, SynAck};

/// Flags, bytes of text, and the answers of a closed port (§3.10.7.1) and of a listener (§3.10.7.2).
const KNOCKS: &[(u8, usize, Answer, Answer)] = &[
    (SYN, 0, ResetAck, SynAck),
    (SYN | ECE | CWR, 0, ResetAck, SynAck),
    (SYN | PSH, 0, ResetAck, SynAck),
    (SYN, 5, ResetAck, SynAck),
    (0, 0, ResetAck, Silence),
    (0, 7, ResetAck, Silence),
    (FIN, 0, ResetAck, Silence),
    (FIN, 7, ResetAck, Silence),
    (FIN | PSH | URG, 0, ResetAck, Silence),
    (PSH, 0, ResetAck, Silence),
    (URG, 0, ResetAck, Silence),
    (ECE | CWR, 0, ResetAck, Silence),
    (ACK, 0, Reset, Reset),
    (ACK | PSH, 9, Reset, Reset),
    (FIN | ACK, 0, Reset, Reset),
    (SYN | ACK, 0, Reset, Reset),
    (SYN | FIN | ACK, 0, Reset, Reset),
    (ACK | URG | PSH | FIN | ECE | CWR, 0, Reset, Reset),
    (RST, 0, Silence, Silence),
    (RST | ACK, 0, Silence, Silence),
    (SYN | RST, 0, Silence, Silence),
    (FIN | RST, 0, Silence, Silence),
    (0xff, 0, Silence, Silence),
];

/// Options of a SYN, and what a listener answers: what it does not know it skips (MUST-6), with a length that cannot be it drops the segment (MUST-7).
const OPTIONS: &[(&[u8], Answer)] = &[
    // nmap's six probes of sequence numbers.
    (
        &[
            3, 3, 10, 1, 2, 4, 5, 180, 8, 10, 255, 255, 255, 255, 0, 0, 0, 0, 4, 2,
        ],
        SynAck,
    ),
    (
        &[
            2, 4, 5, 120, 3, 3, 0, 4, 2, 8, 10, 255, 255, 255, 255, 0, 0, 0, 0, 0,
        ],
        SynAck,
    ),
    (
        &[
            8, 10, 255, 255, 255, 255, 0, 0, 0, 0, 1, 1, 3, 3, 5, 1, 2, 4, 2, 128,
        ],
        SynAck,
    ),
    (
        &[4, 2, 8, 10, 255, 255, 255, 255, 0, 0, 0, 0, 3, 3, 10, 0],
        SynAck,
    ),
    (
        &[
            2, 4, 2, 24, 4, 2, 8, 10, 255, 255, 255, 255, 0, 0, 0, 0, 3, 3, 10, 0,
        ],
        SynAck,
    ),
    (
        &[2, 4, 1, 9, 4, 2, 8, 10, 255, 255, 255, 255, 0, 0, 0, 0],
        SynAck,
    ),
    // The least segment, none, a shift too far, an end before the rest, unknown kinds, the same thrice.
    (&[2, 4, 0, 0], SynAck),
    (&[2, 4, 0, 1], SynAck),
    (&[3, 3, 255, 1], SynAck),
    (&[0, 2, 0, 9], SynAck),
    (&[254, 4, 0xf9, 0x89], SynAck),
    (&[77, 6, 1, 2, 3, 4, 1, 1], SynAck),
    (&[4, 2, 4, 2, 4, 2, 1, 1], SynAck),
];

/// Options that end beyond the header, or have no length.
const BROKEN: &[&[u8]] = &[
    &[2, 0, 5, 180],
    &[2, 1, 5, 180],
    &[1, 1, 1, 2],
    &[1, 1, 2, 4],
    &[8, 10, 0, 0],
    &[77, 0, 0, 0],
    &[77, 255, 1, 1],
];

/// A station of its own beside the kernel's, at a packet socket.
struct Station {
    link: Queue,
    slab: Slab,
    ends: Ends,
    port: u16,
}

/// A segment that came.
#[derive(Clone, Copy, Debug)]
struct Heard {
    port: u16,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
}

impl Station {
    fn open(link: &str, target: &str) -> Result<Self, String> {
        let specification = specification::parse(link).map_err(|e| e.to_string())?;
        let link = specification::open(&specification, &Clock::Real).map_err(|e| e.to_string())?;
        let slab = Slab::new(1024, link.properties().frame_max.max(2048));
        // The link's own address: it takes nothing in for others.
        let source_mac = link.properties().mac.0;
        Ok(Self {
            slab: slab.map_err(|e| e.to_string())?,
            ends: Ends {
                source_mac,
                ..Ends::new(mac(target)?)
            },
            link: Queue::of(link).map_err(|e| e.to_string())?,
            port: 20_000,
        })
    }

    fn transmit(&mut self, frame: &[u8]) -> Outcome {
        let buffer = self.slab.alloc().ok_or("no buffer")?;
        let mut packet = Packet::new(buffer, 0);
        packet.room_mut()[..frame.len()].copy_from_slice(frame);
        packet.set_len(frame.len());
        let mut one = VecDeque::from([packet]);
        let sent = self.link.tx.transmit(Clock::Real.now(), &mut one);
        sent.map(drop).map_err(|e| e.to_string())
    }

    /// Announces our address, so that no host has to ask.
    fn introduce(&mut self) -> Outcome {
        let ends = self.ends;
        self.transmit(&arp(&ends, 1))?;
        let mut solicitation = vec![135, 0, 0, 0, 0, 0, 0, 0];
        solicitation.extend(ends.target6);
        solicitation.extend([1, 1]);
        solicitation.extend(ends.source_mac);
        self.transmit(&transport(&ends, true, 58, 2, solicitation))
    }

    /// A segment from a port of its own.
    fn send(&mut self, v6: bool, to: u16, port: u16, segment: &Segment<'_>) -> Outcome {
        let ports = (port, to);
        let frame = tcp(&self.ends, v6, &Segment { ports, ..*segment });
        self.transmit(&frame)
    }

    fn next_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    /// What has come for us; a host that asks for our address is told.
    fn listen(&mut self, v6: bool) -> Result<Vec<Heard>, String> {
        let mut burst = VecDeque::new();
        let came = self
            .link
            .rx
            .receive(Clock::Real.now(), &mut self.slab, &mut burst, 64);
        came.map_err(|e| e.to_string())?;
        let mut heard = Vec::new();
        for packet in burst {
            let frame = packet.bytes();
            if asks_for_us(frame) {
                self.introduce()?;
            }
            heard.extend(segment_for(frame, &self.ends, v6));
        }
        Ok(heard)
    }

    /// Listens until `enough` of what came, or for as long as a slow machine may take.
    #[allow(clippy::disallowed_methods)] // a patience in the machine's time
    fn hear(
        &mut self,
        v6: bool,
        mut enough: impl FnMut(&[Heard]) -> bool,
    ) -> Result<Vec<Heard>, String> {
        let begin = Instant::now();
        let mut all = Vec::new();
        while !enough(&all) && begin.elapsed() < SOON {
            all.extend(self.listen(v6)?);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(all)
    }
}

/// ARP requests and neighbour solicitations: not worth a look at the address they ask for.
fn asks_for_us(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([8, 6]) => frame.get(21) == Some(&1),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&58) && frame.get(54) == Some(&135),
        _ => false,
    }
}

/// The TCP segment in `frame`, if it is one from the server to us.
fn segment_for(frame: &[u8], ends: &Ends, v6: bool) -> Option<Heard> {
    let at = if v6 {
        let is_ours = frame.get(12..14)? == [0x86, 0xdd] && frame.get(38..54)? == ends.source6;
        (is_ours && frame.get(20)? == &6).then_some(54)?
    } else {
        let is_ours = frame.get(12..14)? == [8, 0] && frame.get(30..34)? == ends.source;
        (is_ours && frame.get(23)? == &6).then_some(14 + usize::from(frame.get(14)? & 15) * 4)?
    };
    let tcp = frame.get(at..at + 20)?;
    let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    Some(Heard {
        port: u16::from_be_bytes([tcp[2], tcp[3]]),
        sequence: word(4),
        acknowledgement: word(8),
        flags: tcp[13],
    })
}

const fn segment<'a>(flags: u8, payload: &'a [u8], options: &'a [u8]) -> Segment<'a> {
    Segment {
        ports: (0, 0),
        sequence: SEQUENCE,
        acknowledgement: if flags & ACK == 0 { 0 } else { ACKNOWLEDGED },
        flags,
        options,
        payload,
    }
}

/// What `heard` is as an answer to a probe of `flags` with `length` bytes of text.
fn answer(heard: Option<Heard>, flags: u8, length: usize) -> Result<Answer, String> {
    let Some(heard) = heard else {
        return Ok(Silence);
    };
    let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let end = SEQUENCE + controls + u32::try_from(length).unwrap_or(0);
    let text_taken = [SEQUENCE + 1, end].contains(&heard.acknowledgement);
    match heard.flags & !(ECE | CWR) {
        RST if heard.sequence == ACKNOWLEDGED => Ok(Reset),
        f if f == RST | ACK && heard.sequence == 0 && heard.acknowledgement == end => Ok(ResetAck),
        // The text of a SYN may wait to be sent again.
        f if f == SYN | ACK && text_taken => Ok(SynAck),
        _ => Err(format!("{heard:x?}")),
    }
}

/// A probe, and what is expected of it.
struct Probe<'a> {
    to: u16,
    flags: u8,
    text: &'a [u8],
    options: &'a [u8],
    wanted: Option<Answer>,
}

/// Sends some probes, each from a port of its own, and one more that is answered for sure: what has not come by then does not come.
fn ask(station: &mut Station, v6: bool, probes: &[Probe<'_>]) -> Outcome {
    let mut ports = Vec::new();
    for probe in probes {
        let port = station.next_port();
        ports.push(port);
        let made = segment(probe.flags, probe.text, probe.options);
        station.send(v6, probe.to, port, &made)?;
    }
    let last = station.next_port();
    station.send(v6, CLOSED, last, &segment(ACK, &[], &[]))?;
    let is_answered = |wanted: Option<Answer>| wanted.is_some_and(|w| w != Silence);
    let heard = station.hear(v6, |heard| {
        let has = |port| heard.iter().any(|h| h.port == port);
        let mut pairs = probes.iter().zip(&ports);
        has(last) && pairs.all(|(p, port)| !is_answered(p.wanted) || has(*port))
    })?;
    let mut wrong = Vec::new();
    for (probe, port) in probes.iter().zip(&ports) {
        let first = heard.iter().find(|h| h.port == *port).copied();
        let got = answer(first, probe.flags, probe.text.len());
        if let Some(first) = first.filter(|h| h.flags & SYN != 0) {
            // Nothing stays behind.
            let reset = Segment {
                sequence: first.acknowledgement,
                ..segment(RST, &[], &[])
            };
            station.send(v6, probe.to, *port, &reset)?;
        }
        if probe.wanted.is_some_and(|wanted| got != Ok(wanted)) {
            wrong.push(format!(
                "port {}, flags {:#x}, {} bytes, options {:?}: {got:?}, not {:?}",
                probe.to,
                probe.flags,
                probe.text.len(),
                probe.options,
                probe.wanted
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("\n"))
}

/// The inner part: all probes, of both families.
pub fn inner(link: &str, target: &str) -> Result<String, String> {
    let mut station = Station::open(link, target)?;
    station.introduce()?;
    let text = [0x41; 16];
    for v6 in [false, true] {
        // A host that has to ask for our address first keeps a few answers only until it knows.
        ask(&mut station, v6, &[])?;
        for to in [CLOSED, OPEN] {
            let knocks: Vec<_> = KNOCKS
                .iter()
                .map(|(flags, length, closed, open)| Probe {
                    to,
                    flags: *flags,
                    text: &text[..*length],
                    options: &[],
                    wanted: Some(if to == OPEN { *open } else { *closed }),
                })
                .collect();
            ask(&mut station, v6, &knocks)?;
        }
        let syn = |options, wanted| Probe {
            to: OPEN,
            flags: SYN,
            text: &[],
            options,
            wanted,
        };
        let odd: Vec<_> = OPTIONS
            .iter()
            .map(|(o, wanted)| syn(*o, Some(*wanted)))
            .collect();
        ask(&mut station, v6, &odd)?;
        // What cannot be parsed may be answered or not; it must do no harm.
        let broken: Vec<_> = BROKEN.iter().map(|o| syn(*o, Some(Silence))).collect();
        ask(&mut station, v6, &broken)?;
        half_open(&mut station, v6)?;
        connected(&mut station, v6)?;
    }
    Ok(format!("{} probes", station.port - 20_000))
}

/// A SYN, and the answer to it.
fn half(station: &mut Station, v6: bool) -> Result<(u16, Heard), String> {
    let port = station.next_port();
    station.send(v6, OPEN, port, &segment(SYN, &[], &[2, 4, 5, 180]))?;
    let heard = station.hear(v6, |heard| heard.iter().any(|h| h.port == port))?;
    let heard = heard.into_iter().find(|h| h.port == port);
    let heard = heard.filter(|h| h.flags == SYN | ACK);
    heard
        .map(|h| (port, h))
        .ok_or_else(|| format!("no SYN-ACK at port {port}"))
}

/// Sends a segment on a connection, and what comes of it before a segment that is always answered.
fn one(
    station: &mut Station,
    v6: bool,
    port: u16,
    probe: &Segment<'_>,
) -> Result<Option<Heard>, String> {
    station.send(v6, OPEN, port, probe)?;
    let last = station.next_port();
    station.send(v6, CLOSED, last, &segment(ACK, &[], &[]))?;
    let heard = station.hear(v6, |heard| heard.iter().any(|h| h.port == last))?;
    // A SYN-ACK that was due again is no answer.
    let mut heard = heard.into_iter();
    Ok(heard.find(|h| h.port == port && h.flags & SYN == 0))
}

/// SYN-RECEIVED (RFC 9293 §3.10.7.4, RFC 5961).
fn half_open(station: &mut Station, v6: bool) -> Outcome {
    let next = SEQUENCE + 1;
    let probes: [(u8, u32, u32, Option<u8>); 6] = [
        // Flags, our sequence number, beyond theirs what is acknowledged, and the answer's flags.
        (0, next, 0, None),
        (FIN, next, 0, None),
        (FIN | PSH | URG, next, 0, None),
        (ACK, next, 77, Some(RST)),
        (ACK, next + 0x4000_0000, 0, Some(ACK)),
        (RST, next + 0x4000_0000, 0, None),
    ];
    for (flags, sequence, beyond, wanted) in probes {
        let (port, heard) = half(station, v6)?;
        let acknowledgement = heard.sequence.wrapping_add(1 + beyond);
        let probe = Segment {
            sequence,
            acknowledgement,
            ..segment(flags, &[], &[])
        };
        let got = one(station, v6, port, &probe)?;
        if got.map(|h| h.flags) != wanted {
            return Err(format!(
                "SYN-RECEIVED, flags {flags:#x}, sequence {sequence:#x}: {got:x?}"
            ));
        }
        // The reset that counts: at RCV.NXT.
        let reset = Segment {
            sequence: next,
            ..segment(RST, &[], &[])
        };
        station.send(v6, OPEN, port, &reset)?;
    }
    Ok(())
}

/// ESTABLISHED (RFC 9293 §3.10.7.4, RFC 5961).
fn connected(station: &mut Station, v6: bool) -> Outcome {
    let next = SEQUENCE + 1;
    let far = next + 0x4000_0000;
    let probes: [(u8, u32, u32, Option<u8>); 11] = [
        // No ACK, no answer; acceptable or not.
        (0, next, 0, None),
        (FIN, next, 0, None),
        (FIN | PSH | URG, next, 0, None),
        // A SYN is challenged wherever it is; so is what is not acceptable.
        (SYN, next, 0, Some(ACK)),
        (SYN, far, 0, Some(ACK)),
        (SYN | ACK, next, 0, Some(ACK)),
        (ACK, far, 0, Some(ACK)),
        (FIN | ACK, far, 0, Some(ACK)),
        // What was never sent cannot be acknowledged.
        (ACK, next, 77, Some(ACK)),
        // A reset in the window is challenged, elsewhere nothing.
        (RST, next + 1, 0, Some(ACK)),
        (RST, far, 0, None),
    ];
    for (flags, sequence, beyond, wanted) in probes {
        let (port, heard) = half(station, v6)?;
        let theirs = heard.sequence.wrapping_add(1);
        let open = Segment {
            sequence: next,
            acknowledgement: theirs,
            ..segment(ACK, &[], &[])
        };
        station.send(v6, OPEN, port, &open)?;
        let acknowledgement = theirs.wrapping_add(beyond);
        let probe = Segment {
            sequence,
            acknowledgement,
            ..segment(flags, &[], &[])
        };
        let got = one(station, v6, port, &probe)?;
        let is_right = got.is_none_or(|h| h.sequence == theirs && h.acknowledgement == next);
        if got.map(|h| h.flags) != wanted || !is_right {
            return Err(format!(
                "ESTABLISHED, flags {flags:#x}, sequence {sequence:#x}: {got:x?}"
            ));
        }
        let reset = Segment {
            sequence: next,
            ..segment(RST, &[], &[])
        };
        station.send(v6, OPEN, port, &reset)?;
    }
    Ok(())
}

fn probes(knobs: &Knobs) -> Outcome {
    let mut target = Target::new()?;
    let mac = mac_of(&target.place)?;
    let inner = target.place.inner(&["probes", "packet:nc0", &mac])?;
    let said = inner.finish(Duration::from_secs(120))?.success()?;
    println!("    {}", said.output.trim());
    if knobs.soak && find("nmap").is_some() {
        nmap(&target)?;
    } else {
        skipped(
            "probes_get_their_answers",
            "a case of the long form, which takes nmap",
        );
    }
    target.serves()?;
    target.is_as_before(0)?;
    let dropped = target.growth()?;
    if dropped
        .iter()
        .any(|(name, _)| name.contains("drop_tcp_no_socket"))
    {
        return Ok(());
    }
    Err(format!("nothing was counted: {dropped:?}"))
}

/// nmap itself: each kind of scan finds the one port that is open (or cannot tell it from one that is filtered).
fn nmap(target: &Target) -> Outcome {
    for (scan, wanted) in [
        ("-sS", "8000/tcp open "),
        ("-sT", "8000/tcp open "),
        ("-sF", "8000/tcp open|filtered"),
        ("-sN", "8000/tcp open|filtered"),
        ("-sX", "8000/tcp open|filtered"),
        ("-sA", "unfiltered"),
        // FIN and ACK: a listener resets it, as §3.10.7.2 has it.
        ("-sM", "8000/tcp closed"),
        ("-O", "8000/tcp open "),
    ] {
        let arguments = ["-n", "-Pn", scan, "-p", "7990-8010", OURS[0]];
        let done = target
            .place
            .run("nmap", &arguments, Duration::from_secs(300))?
            .success()?;
        if !done.output.contains(wanted) {
            return Err(format!("nmap {scan}: {}", done.output));
        }
    }
    Ok(())
}
