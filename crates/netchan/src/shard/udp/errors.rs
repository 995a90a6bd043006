//! Errors of UDP sockets: from ICMP (RFC 1122 §4.1.3.3), and from this host; pending ones, and those that a socket keeps with what they are about.

use std::{
    collections::VecDeque,
    io::IoSliceMut,
    net::{IpAddr, SocketAddr},
};

use proto::{
    icmp::{IncomingError, Kind},
    time::Instant,
    wire::{icmpv4, icmpv6, ipv4::Protocol, udp::HEADER_LEN},
};

use super::{Destination, Shard, UdpSocket};
use crate::{
    api::{Discovery, ErrorOrigin, Readiness, ReceivedError, SocketError},
    counters::Counter,
    driver::steer::short,
    flow::FlowKey,
    limits,
};

/// No shorter IPv4 path is believed in for UDP, as in Linux (`min_pmtu`): below it datagrams go without DF, so that a forged ICMP error
/// cannot make fragments of everything (RFC 8900 §3.7).
const PATH_MIN_V4: u16 = 552;

/// An ICMP error about a datagram that this host sent, as far as steering has matched it.
pub(in crate::shard) struct Report<'a> {
    /// UDP, or ICMP or ICMPv6 of an echo request, whose identifier is its port.
    pub protocol: Protocol,
    /// Our end and the other.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// ICMP type and code as they came.
    pub kind: u8,
    pub code: u8,
    /// MTU or pointer.
    pub info: u32,
    /// Octets of the packet quoted, by its own header.
    pub quoted_len: u16,
    /// Sender of the message.
    pub offender: IpAddr,
    /// As much of the datagram's payload as it quotes.
    pub payload: &'a [u8],
}

impl<'a> Report<'a> {
    /// What an ICMP message says that was found right.
    pub fn new(message: &'a [u8], error: &IncomingError, offender: IpAddr) -> Option<Self> {
        let (&[kind, code, _, _, rest @ ..], quote) = message.split_first_chunk::<8>()?;
        let rest = u32::from_be_bytes(rest);
        let is_v4 = error.local.0.is_ipv4();
        let info = match error.kind {
            Kind::PacketTooBig(mtu) => mtu,
            Kind::ParameterProblem(_) if is_v4 => rest >> 24,
            _ if is_v4 => 0,
            _ => rest,
        };
        Some(Self {
            protocol: error.protocol,
            local: error.local.into(),
            remote: error.remote.into(),
            kind,
            code,
            info,
            quoted_len: error.quoted_len,
            offender,
            payload: payload_of(quote, error),
        })
    }

    /// What this host says of a packet of its own that found no next hop: as Linux, an ICMP error to itself.
    pub fn undeliverable(packet: &'a [u8], error: &IncomingError) -> Self {
        let (kind, code) = if error.local.0.is_ipv4() {
            (3, icmpv4::unreachable::HOST)
        } else {
            (1, icmpv6::unreachable::ADDRESS)
        };
        Self {
            protocol: error.protocol,
            local: error.local.into(),
            remote: error.remote.into(),
            kind,
            code,
            info: 0,
            quoted_len: error.quoted_len,
            offender: error.local.0,
            payload: payload_of(packet, error),
        }
    }
}

/// The UDP payload of a packet of ours, which may be cut anywhere, or the echo request that it is. What we send has no header before that
/// but a fragment's.
fn payload_of<'a>(packet: &'a [u8], error: &IncomingError) -> &'a [u8] {
    let upper = match packet {
        [first, ..] if first >> 4 == 4 => usize::from(first & 15) * 4,
        [_, _, _, _, _, _, next, ..] if *next == Protocol::FRAGMENT.0 => 48,
        _ => 40,
    };
    if error.protocol != Protocol::UDP {
        let len = packet.len().min(usize::from(error.quoted_len));
        return packet.get(upper..len).unwrap_or_default();
    }
    let Some((header, rest)) = (packet.get(upper..)).and_then(|d| d.split_at_checked(HEADER_LEN))
    else {
        return &[];
    };
    // Behind a short quotation there may be padding (RFC 4884 §5.1).
    let len = usize::from(u16::from_be_bytes([header[4], header[5]])).saturating_sub(HEADER_LEN);
    rest.get(..len).unwrap_or(rest)
}

/// What an ICMP error is to a socket, and whether one without an error queue hears of it, if it is connected. As Linux; but what is
/// unreachable for now is told to connected sockets, too (RFC 1122 §4.1.3.3: errors are passed on).
const fn errno_of(is_v4: bool, kind: u8, code: u8) -> (i32, bool) {
    match (is_v4, kind, code) {
        (true, 3, 2) => (libc::ENOPROTOOPT, true),
        (true, 3, 3) | (false, 1, 4) => (libc::ECONNREFUSED, true),
        (true, 3, 4) | (false, 2, _) => (libc::EMSGSIZE, true),
        (true, 3, 5) => (libc::EOPNOTSUPP, false),
        (true, 3, 0 | 6 | 9 | 11) | (false, 1, 0) => (libc::ENETUNREACH, true),
        (true, 3, 7) => (libc::EHOSTDOWN, true),
        (true, 3, 8) => (libc::ENONET, true),
        (true, 3, _) | (false, 1, 2 | 3) => (libc::EHOSTUNREACH, true),
        (false, 1, 1 | 5 | 6) => (libc::EACCES, true),
        (true, 12, _) | (false, 4, _) => (libc::EPROTO, true),
        (_, 11, _) | (false, 3, _) => (libc::EHOSTUNREACH, false),
        _ => (libc::EPROTO, false),
    }
}

/// Errors that a socket keeps for MSG_ERRQUEUE: so many, and so much payload. What comes beyond is dropped, as on Linux.
#[derive(Debug)]
pub(super) struct ErrorQueue {
    errors: VecDeque<(SocketError, usize)>,
    /// Their payloads, one after the other.
    payloads: VecDeque<u8>,
}

impl ErrorQueue {
    /// With all its memory.
    pub fn new() -> Self {
        Self {
            errors: VecDeque::with_capacity(limits::UDP_ERRORS),
            payloads: VecDeque::with_capacity(limits::UDP_ERROR_BYTES),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// False: it is full.
    fn push(&mut self, error: SocketError, payload: &[u8]) -> bool {
        let fits = self.payloads.len() + payload.len() <= limits::UDP_ERROR_BYTES;
        if !fits || self.errors.len() >= limits::UDP_ERRORS {
            return false;
        }
        self.errors.push_back((error, payload.len()));
        self.payloads.extend(payload);
        true
    }

    fn pop(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Option<ReceivedError> {
        let (error, whole) = self.errors.pop_front()?;
        let mut len = 0;
        for buffer in buffers {
            let n = (whole - len).min(buffer.len());
            let bytes = self.payloads.drain(..n);
            buffer
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, byte)| *to = byte);
            len += n;
        }
        self.payloads.drain(..whole - len);
        Some(ReceivedError {
            len,
            truncated: len < whole,
            error,
        })
    }

    /// The errno of the next one, if that came by ICMP.
    fn next_pending(&self) -> Option<i32> {
        let (error, _) = self.errors.front()?;
        (error.origin != ErrorOrigin::Local).then_some(error.errno)
    }
}

impl UdpSocket {
    /// An error queue is made with the option that asks for it, and goes with it. What it holds goes when an option does (`is_emptied`).
    pub(super) fn keep_errors(&mut self, is_emptied: bool) {
        let is_kept = self.options.errors != [false, false];
        if is_emptied || !is_kept {
            self.errors = None;
        }
        if is_kept && self.errors.is_none() {
            self.errors = Some(Box::new(ErrorQueue::new()));
        }
    }

    /// Where errors about one family go, if the socket asked for them.
    fn errors_about(&mut self, is_v4: bool) -> Option<&mut ErrorQueue> {
        let is_asked = self.options.errors[usize::from(!is_v4)];
        self.errors.as_deref_mut().filter(|_| is_asked)
    }

    /// Whether there is something for MSG_ERRQUEUE.
    pub(super) fn has_errors(&self) -> bool {
        self.errors.as_ref().is_some_and(|queue| !queue.is_empty())
    }
}

impl Shard {
    /// An ICMP error about a datagram. It must name a socket of ours; one without an error queue must be connected to that peer.
    pub(in crate::shard) fn udp_icmp(&mut self, report: &Report<'_>, now: Instant) {
        let interface = self.host.net.interface_of(report.local.ip()).unwrap_or(0);
        let interface = u8::try_from(interface).unwrap_or(u8::MAX);
        let number = if report.protocol == Protocol::UDP {
            let flow = FlowKey {
                local: report.local.ip(),
                remote: report.remote.ip(),
                local_port: report.local.port(),
                remote_port: report.remote.port(),
                protocol: Protocol::UDP,
            };
            let flow = short(self.host.flow_hash.hash(&flow));
            self.udp_socket_for(report.local, report.remote, flow, interface)
        } else {
            self.ping_socket_for(report.local, interface)
        };
        let Some(socket) = number.and_then(|number| self.udp.get_mut(number)) else {
            return self.count(Counter::DropIcmp);
        };
        let is_v4 = report.local.is_ipv4();
        let (errno, mut is_told) = errno_of(is_v4, report.kind, report.code);
        let discovery = socket.options.discovery;
        if errno == libc::EMSGSIZE {
            // RFC 5927 §7.2: what is no longer than that path cannot have been too long for it.
            if report.info >= u32::from(report.quoted_len) || !discovery.learns() {
                return self.count(Counter::DropIcmp);
            }
            let whole = u16::MAX;
            self.paths.report(
                report.remote.ip(),
                report.info,
                report.quoted_len,
                whole,
                now,
            );
            // To a program that wants no discovery it is no error: fragments come next.
            is_told = discovery != Discovery::Dont;
            if !is_told && is_v4 {
                return;
            }
        }
        let Some(socket) = number.and_then(|number| self.udp.get_mut(number)) else {
            return;
        };
        let mut is_lost = false;
        let is_connected = socket.peer.is_some();
        match socket.errors_about(is_v4) {
            Some(queue) => {
                let origin = if is_v4 {
                    ErrorOrigin::Icmp
                } else {
                    ErrorOrigin::IcmpV6
                };
                let error = SocketError {
                    errno,
                    origin,
                    kind: report.kind,
                    code: report.code,
                    info: report.info,
                    destination: report.remote,
                    offender: Some(report.offender),
                };
                is_lost = !queue.push(error, report.payload);
            }
            None if !is_told || !is_connected => return,
            None => {}
        }
        socket.raise(errno);
        socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        if is_lost {
            self.count(Counter::DropUdpErrorQueue);
        }
    }

    /// A datagram of ours is longer than may be: EMSGSIZE, for the error queue, too.
    #[cold]
    pub(super) fn udp_too_long(&mut self, number: u32, to: &Destination, now: Instant) -> i32 {
        let Some(socket) = self.udp.get(number) else {
            return libc::EMSGSIZE;
        };
        let is_connected = socket.peer.is_some();
        let (_, mtu) = self.udp_mtu(socket.options.discovery, to, now);
        if let Some(socket) = self.udp.get_mut(number)
            && let Some(queue) = socket.errors_about(to.remote.is_ipv4())
        {
            let mut destination = to.remote;
            // As Linux, which takes the port of IPv4 from the socket.
            if destination.is_ipv4() && !is_connected {
                destination.set_port(0);
            }
            let error = SocketError {
                errno: libc::EMSGSIZE,
                origin: ErrorOrigin::Local,
                kind: 0,
                code: 0,
                info: u32::try_from(mtu).unwrap_or(u32::MAX),
                destination,
                offender: None,
            };
            queue.push(error, &[]);
            socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        }
        libc::EMSGSIZE
    }

    /// Takes the first error of the queue (MSG_ERRQUEUE).
    ///
    /// # Errors
    /// EAGAIN: there is none.
    pub fn udp_receive_error(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<ReceivedError, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        let queue = socket.errors.as_mut().ok_or(libc::EAGAIN)?;
        let received = queue.pop(buffers).ok_or(libc::EAGAIN)?;
        // As Linux: the pending error is the one that comes next.
        if received.error.origin != ErrorOrigin::Local {
            match queue.next_pending() {
                Some(next) => socket.raise(next),
                None => socket.error = None,
            }
        }
        Ok(received)
    }

    /// What the interface takes, and what the path there is known to take, if that counts.
    pub(super) fn udp_mtu(
        &mut self,
        discovery: Discovery,
        to: &Destination,
        now: Instant,
    ) -> (usize, usize) {
        let interface = self.host.net.interfaces.get(usize::from(to.interface));
        let mtu = interface.map_or(0, |facts| facts.mtu);
        if discovery.heeds_path() {
            return (mtu, self.udp_path(to.remote.ip(), mtu, now));
        }
        (mtu, mtu)
    }

    /// What the path to `remote` is known to take, of an interface's `mtu`.
    pub(in crate::shard) fn udp_path(&self, remote: IpAddr, mtu: usize, now: Instant) -> usize {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let known = self.paths.lookup(remote, mtu, now);
        let least = if remote.is_ipv4() {
            PATH_MIN_V4.min(mtu)
        } else {
            0
        };
        usize::from(known.max(least))
    }

    /// Whether DF is of no use: the path is said to take less than is believed.
    pub(super) fn udp_path_is_odd(remote: IpAddr, path: usize) -> bool {
        remote.is_ipv4() && path <= usize::from(PATH_MIN_V4)
    }

    /// IP_MTU of a connected socket.
    pub fn udp_path_mtu(&self, number: u32, now: Instant) -> Option<usize> {
        let socket = self.udp.get(number)?;
        let peer = socket.peer?;
        let (interface, _) = self
            .host
            .net
            .route_by(socket.device(), peer.ip(), socket.mark())?;
        let mtu = self.host.net.interfaces.get(usize::from(interface))?.mtu;
        Some(self.udp_path(peer.ip(), mtu, now))
    }
}

#[cfg(test)]
mod tests;
