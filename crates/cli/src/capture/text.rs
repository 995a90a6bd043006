//! A frame as a line, in the words of tcpdump(8).

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use etherparse::{
    Icmpv4Slice, Icmpv6Slice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TcpOptionElement, TcpSlice,
    TransportSlice, UdpSlice,
};
use netchan::{control::capture::Frame, tap::Way};

use crate::output::printable;

/// Flows whose first sequence number is known; beyond, all are forgotten.
const FLOWS_MAX: usize = 65_536;

/// What lines are made of.
pub struct Lines {
    links: Vec<String>,
    /// The first sequence number of each direction of a connection: lines count from there.
    first: HashMap<(SocketAddr, SocketAddr), u32>,
}

impl Lines {
    /// Of a stack with these links.
    pub fn new(links: Vec<String>) -> Self {
        Self {
            links,
            first: HashMap::new(),
        }
    }

    /// The line for a frame, with a comment where there is one.
    pub fn line(&mut self, frame: &Frame, comment: Option<&str>) -> String {
        let link = self
            .links
            .get(usize::from(frame.link))
            .map_or("?", String::as_str);
        let way = match frame.way {
            Way::In => "In ",
            Way::Out => "Out",
        };
        let mut line = format!("{} {link} {way} ", time(frame.time));
        let parsed = LaxSlicedPacket::from_ethernet(&frame.bytes);
        match parsed {
            Ok(packet) => self.packet(&mut line, frame, &packet),
            Err(_) => line.push_str("[cut]"),
        }
        if frame.segment > 0 {
            let _ = write!(line, " [uncut, segments of {}]", frame.segment);
        }
        if let Some(comment) = comment {
            let _ = write!(line, " [{comment}]");
        }
        line.push('\n');
        line
    }

    fn packet(&mut self, line: &mut String, frame: &Frame, packet: &LaxSlicedPacket<'_>) {
        let cut = frame
            .length
            .saturating_sub(u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX));
        let (source, destination, protocol, text) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let text =
                    u32::from(header.total_len()).saturating_sub(u32::from(header.ihl()) * 4);
                line.push_str("IP ");
                (
                    IpAddr::V4(header.source_addr()),
                    IpAddr::V4(header.destination_addr()),
                    header.protocol().0,
                    text,
                )
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                line.push_str("IP6 ");
                let protocol = ip.payload().ip_number.0;
                (
                    IpAddr::V6(header.source_addr()),
                    IpAddr::V6(header.destination_addr()),
                    protocol,
                    u32::from(header.payload_length()),
                )
            }
            Some(LaxNetSlice::Arp(arp)) => return arp_line(line, arp, frame.length),
            None => return other(line, packet, frame.length),
        };
        // Of a frame that is longer than an IP packet can say, the frame tells.
        let text = if text == 0 {
            frame.length.saturating_sub(34)
        } else {
            text
        };
        match &packet.transport {
            Some(TransportSlice::Tcp(tcp)) => self.tcp(line, tcp, (source, destination), text),
            Some(TransportSlice::Udp(udp)) => udp_line(line, udp, (source, destination)),
            Some(TransportSlice::Icmpv4(icmp)) => {
                icmp_line(line, icmp, (source, destination), text)
            }
            Some(TransportSlice::Icmpv6(icmp)) => {
                icmp6_line(line, icmp, (source, destination), text)
            }
            Some(TransportSlice::Igmp(_)) => {
                let _ = write!(line, "{source} > {destination}: igmp, length {text}");
            }
            None => {
                let _ = write!(
                    line,
                    "{source} > {destination}: ip-proto-{protocol}, length {text}"
                );
                if cut > 0 && packet.stop_err.is_some() {
                    line.push_str(" [cut]");
                }
            }
        }
    }

    fn tcp(
        &mut self,
        line: &mut String,
        tcp: &TcpSlice<'_>,
        (source, destination): (IpAddr, IpAddr),
        text: u32,
    ) {
        let from = SocketAddr::new(source, tcp.source_port());
        let to = SocketAddr::new(destination, tcp.destination_port());
        let length = text.saturating_sub(u32::from(tcp.data_offset()) * 4);
        let mut flags = String::new();
        for (is_set, letter) in [
            (tcp.syn(), 'S'),
            (tcp.fin(), 'F'),
            (tcp.rst(), 'R'),
            (tcp.psh(), 'P'),
            (tcp.ack(), '.'),
            (tcp.urg(), 'U'),
            (tcp.ece(), 'E'),
            (tcp.cwr(), 'W'),
        ] {
            if is_set {
                flags.push(letter);
            }
        }
        if flags.is_empty() {
            flags.push_str("none");
        }
        let _ = write!(line, "{} > {}: Flags [{flags}]", end(from), end(to));
        if self.first.len() >= FLOWS_MAX {
            self.first.clear();
        }
        let seq = tcp.sequence_number();
        if tcp.syn() {
            // The connection counts from here on, this segment in full.
            self.first.insert((from, to), seq);
            let _ = write!(line, ", seq {seq}");
        } else if length > 0 || tcp.fin() || tcp.rst() {
            let first = *self.first.entry((from, to)).or_insert(seq);
            let begin = seq.wrapping_sub(first);
            let _ = match length {
                0 => write!(line, ", seq {begin}"),
                _ => write!(line, ", seq {begin}:{}", begin.wrapping_add(length)),
            };
        }
        if tcp.ack() {
            let ack = tcp.acknowledgment_number();
            let first = self.first.get(&(to, from)).copied().unwrap_or(0);
            let _ = write!(line, ", ack {}", ack.wrapping_sub(first));
        }
        let _ = write!(line, ", win {}", tcp.window_size());
        if tcp.urg() {
            let _ = write!(line, ", urg {}", tcp.urgent_pointer());
        }
        let options: Vec<String> = tcp
            .options_iterator()
            .map(|option| match option {
                Ok(option) => option_text(&option),
                Err(_) => "?".to_owned(),
            })
            .collect();
        if !options.is_empty() {
            let _ = write!(line, ", options [{}]", options.join(","));
        }
        let _ = write!(line, ", length {length}");
    }
}

fn option_text(option: &TcpOptionElement) -> String {
    match option {
        TcpOptionElement::Noop => "nop".to_owned(),
        TcpOptionElement::MaximumSegmentSize(mss) => format!("mss {mss}"),
        TcpOptionElement::WindowScale(shift) => format!("wscale {shift}"),
        TcpOptionElement::SelectiveAcknowledgementPermitted => "sackOK".to_owned(),
        TcpOptionElement::SelectiveAcknowledgement(first, more) => {
            let blocks = std::iter::once(Some(*first))
                .chain(more.iter().copied())
                .flatten();
            let blocks: Vec<String> = blocks
                .map(|(left, right)| format!("{{{left}:{right}}}"))
                .collect();
            format!("sack {} {}", blocks.len(), blocks.concat())
        }
        TcpOptionElement::Timestamp(value, echo) => format!("TS val {value} ecr {echo}"),
    }
}

/// Seconds of the day in UTC, as a packet's time. (A name for each zone of the world would be another library's work.)
fn time(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs() % 86_400;
    format!(
        "{:02}:{:02}:{:02}.{:06}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since_1970.subsec_micros()
    )
}

/// `10.0.0.1.80`, as tcpdump has it.
fn end(end: SocketAddr) -> String {
    format!("{}.{}", end.ip(), end.port())
}

fn udp_line(line: &mut String, udp: &UdpSlice<'_>, (source, destination): (IpAddr, IpAddr)) {
    let from = SocketAddr::new(source, udp.source_port());
    let to = SocketAddr::new(destination, udp.destination_port());
    let length = udp.length().saturating_sub(8);
    let _ = write!(line, "{} > {}: UDP, length {length}", end(from), end(to));
}

fn icmp_line(
    line: &mut String,
    icmp: &Icmpv4Slice<'_>,
    (source, destination): (IpAddr, IpAddr),
    length: u32,
) {
    let _ = write!(line, "{source} > {destination}: ICMP ");
    let [_, _, _, _, i0, i1, s0, s1, ..] = *icmp.slice() else {
        return line.push_str("[cut]");
    };
    let (id, seq) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([s0, s1]));
    let _ = match icmp.type_u8() {
        8 => write!(line, "echo request, id {id}, seq {seq}, length {length}"),
        0 => write!(line, "echo reply, id {id}, seq {seq}, length {length}"),
        kind => write!(
            line,
            "type {kind}, code {}, length {length}",
            icmp.code_u8()
        ),
    };
}

fn icmp6_line(
    line: &mut String,
    icmp: &Icmpv6Slice<'_>,
    (source, destination): (IpAddr, IpAddr),
    length: u32,
) {
    let what = match icmp.type_u8() {
        1 => "destination unreachable",
        2 => "packet too big",
        3 => "time exceeded",
        128 => "echo request",
        129 => "echo reply",
        133 => "router solicitation",
        134 => "router advertisement",
        135 => "neighbor solicitation",
        136 => "neighbor advertisement",
        143 => "multicast listener report v2",
        _ => "message",
    };
    let _ = write!(
        line,
        "{source} > {destination}: ICMP6, {what} (type {}, code {}), length {length}",
        icmp.type_u8(),
        icmp.code_u8()
    );
}

fn arp_line(line: &mut String, arp: &etherparse::ArpPacketSlice<'_>, length: u32) {
    let v4 = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let (Some(sender), Some(target)) = (
        v4(arp.sender_protocol_addr()),
        v4(arp.target_protocol_addr()),
    ) else {
        let _ = write!(line, "ARP, not of IPv4, length {length}");
        return;
    };
    let _ = match arp.operation().0 {
        1 => write!(
            line,
            "ARP, Request who-has {target} tell {sender}, length {length}"
        ),
        2 => write!(
            line,
            "ARP, Reply {sender} is-at {}, length {length}",
            mac(arp.sender_hw_addr())
        ),
        operation => write!(line, "ARP, operation {operation}, length {length}"),
    };
}

fn mac(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn other(line: &mut String, packet: &LaxSlicedPacket<'_>, length: u32) {
    match &packet.link {
        Some(LinkSlice::Ethernet2(ethernet)) => {
            let (from, to) = (mac(&ethernet.source()), mac(&ethernet.destination()));
            let kind = ethernet.ether_type().0;
            let _ = write!(
                line,
                "{from} > {to}, ethertype 0x{kind:04x}, length {length}"
            );
        }
        _ => line.push_str(&printable("[no Ethernet frame]")),
    }
}
