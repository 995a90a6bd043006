//! Ancillary data of datagrams (cmsg(3), ip(7), ipv6(7), udp(7)): what a program sends along, and what it asked to be told.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use libc::{c_int, cmsghdr, msghdr, sockaddr, socklen_t};
use netchan::socket::{
    DatagramInfo, Domain, ErrorOrigin, Kind, Received, SendInfo, SentPacket, SocketError,
    options::CallerFlag,
};

use crate::{
    address,
    asked::{Asked, OF_A_SEND},
    buffers, driver,
    errno::fail,
    state::Live,
};

const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const IP_RECVERR: c_int = 11;
const IPV6_RECVERR: c_int = 25;
const IPV6_ORIGDSTADDR: c_int = 74;
const TCP_CM_INQ: c_int = 36;
const SCM_TS_OPT_ID: c_int = 81;

/// Bytes of a `struct cmsghdr`: the length as a word, level and type as ints.
const HEADER: usize = size_of::<cmsghdr>();

/// The room that a program has for ancillary data, filled from the front as Linux's `put_cmsg` does: what is cut is marked.
struct Control<'a> {
    room: &'a mut [u8],
    used: usize,
    is_cut: bool,
}

impl Control<'_> {
    fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let room = self.room.get_mut(self.used..).unwrap_or_default();
        let whole = HEADER + data.len();
        let len = whole.min(room.len());
        let Some((header, body)) = room.split_at_mut_checked(HEADER) else {
            self.is_cut = true;
            return;
        };
        header[..8].copy_from_slice(&len.to_ne_bytes());
        header[8..12].copy_from_slice(&level.to_ne_bytes());
        header[12..].copy_from_slice(&kind.to_ne_bytes());
        body.iter_mut().zip(data).for_each(|(to, byte)| *to = *byte);
        self.is_cut |= len < whole;
        self.used += whole
            .next_multiple_of(size_of::<usize>())
            .min(HEADER + body.len());
    }
}

/// Fills a message's control data by `tell`; what `msg_flags` says of it.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
unsafe fn fill(message: &mut msghdr, tell: impl FnOnce(&mut Control<'_>)) -> c_int {
    // SAFETY: the caller's. NULL is no room.
    let room = unsafe { buffers::writable(message.msg_control, message.msg_controllen) };
    let mut control = Control {
        room: room.unwrap_or_default(),
        used: 0,
        is_cut: false,
    };
    tell(&mut control);
    message.msg_controllen = control.used;
    if control.is_cut { libc::MSG_CTRUNC } else { 0 }
}

/// Tells what was asked of a datagram, in Linux's order; flags for `msg_flags`.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn tell(message: &mut msghdr, received: &Received, live: Live<'_>) -> c_int {
    let to_tell = ToTell {
        asked: &live.state.asked,
        domain: live.state.domain,
        stamped: live.state.tells_arrivals(),
    };
    let answer_from = || match live.state.kind {
        Kind::Ping => Some(Ipv4Addr::UNSPECIFIED.into()), // as Linux
        Kind::Stream | Kind::Datagram => live.socket.answer_from(received),
    };
    // SAFETY: the caller's.
    unsafe { tell_of_datagram(message, received.info, &to_tell, answer_from) }
}

/// What a datagram socket is asked to tell.
pub struct ToTell<'a> {
    pub asked: &'a Asked,
    pub domain: Domain,
    /// With time stamps of SO_TIMESTAMPING.
    pub stamped: bool,
}

/// The same of whatever socket; `answer_from` is the address of ours that an answer goes out from.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn tell_of_datagram(
    message: &mut msghdr,
    info: Option<DatagramInfo>,
    to_tell: &ToTell<'_>,
    answer_from: impl FnOnce() -> Option<IpAddr>,
) -> c_int {
    let &ToTell {
        asked,
        domain,
        stamped,
    } = to_tell;
    let info = info.filter(|info| info.segment > 0 || !asked.is_empty() || stamped);
    let Some(info) = info else {
        message.msg_controllen = 0;
        return 0;
    };
    // SAFETY: the caller's.
    unsafe {
        fill(message, |control| {
            put_info(control, &info, asked, (domain, stamped));
            put_v4(control, &info, asked, answer_from);
        })
    }
}

/// Tells what was asked of a stream; flags for `msg_flags`.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn tell_of_stream(message: &mut msghdr, live: Live<'_>) -> c_int {
    let (asked, stamped) = (&live.state.asked, live.state.tells_arrivals());
    if asked.is_empty() && !stamped {
        message.msg_controllen = 0;
        return 0;
    }
    let tell = |control: &mut Control<'_>| {
        let since = live.socket.since_text().unwrap_or_default();
        if asked.get(CallerFlag::Timestamp) || asked.get(CallerFlag::TimestampNs) {
            put_time(control, since, asked.get(CallerFlag::TimestampNs));
        }
        if stamped {
            put_stamp(control, driver::wall_clock().saturating_sub(since));
        }
        if live.state.asked.get(CallerFlag::Unread) {
            let unread = c_int::try_from(live.socket.unread()).unwrap_or(c_int::MAX);
            control.put(libc::IPPROTO_TCP, TCP_CM_INQ, &unread.to_ne_bytes());
        }
    };
    // SAFETY: the caller's.
    unsafe { fill(message, tell) }
}

fn put_info(
    control: &mut Control<'_>,
    info: &DatagramInfo,
    asked: &Asked,
    (domain, stamped): (Domain, bool),
) {
    if asked.get(CallerFlag::Timestamp) || asked.get(CallerFlag::TimestampNs) {
        put_time(control, info.age, asked.get(CallerFlag::TimestampNs));
    }
    if stamped {
        put_stamp(control, driver::wall_clock().saturating_sub(info.age));
    }
    if asked.get(CallerFlag::Drops) && info.drops > 0 {
        let drops = info.drops.to_ne_bytes();
        control.put(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &drops);
    }
    if info.segment > 0 {
        let size = c_int::from(info.segment).to_ne_bytes();
        control.put(libc::SOL_UDP, UDP_GRO, &size);
    }
    put_way(control, info, asked, domain);
}

/// Where it went, and by which of this host's interfaces.
fn put_way(control: &mut Control<'_>, info: &DatagramInfo, asked: &Asked, domain: Domain) {
    let index = u32::from(info.interface) + 1;
    let IpAddr::V4(_) = info.destination.ip().to_canonical() else {
        return put_v6(control, info, asked, index);
    };
    if domain == Domain::V6 && asked.get(CallerFlag::PacketInfoV6) {
        put_packet_info_v6(control, info, index);
    }
}

fn put_v4(
    control: &mut Control<'_>,
    info: &DatagramInfo,
    asked: &Asked,
    answer_from: impl FnOnce() -> Option<IpAddr>,
) {
    let IpAddr::V4(to) = info.destination.ip().to_canonical() else {
        return;
    };
    if asked.get(CallerFlag::PacketInfo) {
        let own = match answer_from() {
            Some(IpAddr::V4(own)) => own,
            _ => to,
        };
        let mut data = [0; 12];
        data[..4].copy_from_slice(&(u32::from(info.interface) + 1).to_ne_bytes());
        data[4..8].copy_from_slice(&own.octets());
        data[8..].copy_from_slice(&to.octets());
        control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &data);
    }
    if asked.get(CallerFlag::Ttl) {
        let ttl = c_int::from(info.ttl).to_ne_bytes();
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
    }
    if asked.get(CallerFlag::Tos) {
        control.put(libc::IPPROTO_IP, libc::IP_TOS, &[info.tos]);
    }
    if asked.get(CallerFlag::OriginalDestination) {
        let destination = SocketAddr::new(to.into(), info.destination.port());
        let kind = libc::IP_ORIGDSTADDR;
        put_address(
            control,
            (libc::IPPROTO_IP, kind),
            &[],
            destination,
            Domain::V4,
        );
    }
}

fn put_packet_info_v6(control: &mut Control<'_>, info: &DatagramInfo, index: u32) {
    let to = match info.destination.ip() {
        IpAddr::V4(to) => to.to_ipv6_mapped(),
        IpAddr::V6(to) => to,
    };
    let mut data = [0; 20];
    data[..16].copy_from_slice(&to.octets());
    data[16..].copy_from_slice(&index.to_ne_bytes());
    control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
}

fn put_v6(control: &mut Control<'_>, info: &DatagramInfo, asked: &Asked, index: u32) {
    if asked.get(CallerFlag::PacketInfoV6) {
        put_packet_info_v6(control, info, index);
    }
    if asked.get(CallerFlag::HopLimit) {
        let hops = c_int::from(info.ttl).to_ne_bytes();
        control.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
    }
    if asked.get(CallerFlag::TrafficClass) {
        let class = c_int::from(info.tos).to_ne_bytes();
        control.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
    }
    if asked.get(CallerFlag::OriginalDestinationV6) {
        let what = (libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR);
        put_address(control, what, &[], info.destination, Domain::V6);
    }
}

/// Three times, of which software's is the first (SCM_TIMESTAMPING).
fn put_stamp(control: &mut Control<'_>, at: Duration) {
    let mut data = [0; 48];
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    data[..8].copy_from_slice(&seconds.to_ne_bytes());
    data[8..16].copy_from_slice(&i64::from(at.subsec_nanos()).to_ne_bytes());
    control.put(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &data);
}

/// Tells what a socket says of its sends, and of the packet that it shows; flags for `msg_flags`.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn tell_notice(
    message: &mut msghdr,
    time: Option<Duration>,
    error: &[u8; 16],
    (packet, live): (Option<&SentPacket>, Live<'_>),
) -> c_int {
    let (domain, asked) = (live.state.domain, &live.state.asked);
    // As Linux: an IPv6 socket need not ask.
    let packet = packet.filter(|_| domain == Domain::V6 || live.state.tells_of_packets());
    let tell = |control: &mut Control| {
        if let Some(at) = time {
            put_stamp(control, at);
        }
        if let Some(SentPacket { source, info, .. }) = packet {
            put_way(control, info, asked, domain);
            let spec = match domain {
                Domain::V4 => *source,
                Domain::V6 => Ipv4Addr::UNSPECIFIED.into(), // as Linux
            };
            put_v4(control, info, asked, || Some(spec));
        }
        let source = packet.map(|packet| packet.source);
        put_error(control, error, source, domain);
    };
    // SAFETY: the caller's.
    let flags = unsafe { fill(message, tell) };
    flags | libc::MSG_ERRQUEUE
}

/// An error, and the host that sent it.
fn put_error(
    control: &mut Control<'_>,
    error: &[u8; 16],
    offender: Option<IpAddr>,
    domain: Domain,
) {
    let (what, room) = error_place(domain);
    if let Some(ip) = offender {
        return put_address(control, what, error, SocketAddr::new(ip, 0), domain);
    }
    let mut data = [0; 16 + size_of::<libc::sockaddr_in6>()];
    data[..16].copy_from_slice(error);
    control.put(what.0, what.1, &data[..16 + room]);
}

/// The level and type that errors have, and the bytes of an address behind them.
const fn error_place(domain: Domain) -> ((c_int, c_int), usize) {
    match domain {
        Domain::V4 => (
            (libc::IPPROTO_IP, IP_RECVERR),
            size_of::<libc::sockaddr_in>(),
        ),
        Domain::V6 => (
            (libc::IPPROTO_IPV6, IPV6_RECVERR),
            size_of::<libc::sockaddr_in6>(),
        ),
    }
}

fn put_time(control: &mut Control<'_>, age: Duration, nanoseconds: bool) {
    let at = driver::wall_clock().saturating_sub(age);
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let (fraction, kind) = if nanoseconds {
        (at.subsec_nanos(), libc::SO_TIMESTAMPNS)
    } else {
        (at.subsec_micros(), libc::SO_TIMESTAMP)
    };
    let mut data = [0; 16];
    data[..8].copy_from_slice(&seconds.to_ne_bytes());
    data[8..].copy_from_slice(&i64::from(fraction).to_ne_bytes());
    control.put(libc::SOL_SOCKET, kind, &data);
}

/// Puts `before` and a socket address behind it.
fn put_address(
    control: &mut Control<'_>,
    (level, kind): (c_int, c_int),
    before: &[u8],
    address: SocketAddr,
    domain: Domain,
) {
    let mut data = [0; 16 + size_of::<libc::sockaddr_in6>()];
    let (head, tail) = data.split_at_mut(before.len());
    head.copy_from_slice(before);
    let mut len = socklen_t::try_from(tail.len()).unwrap_or(0);
    let pointer = tail.as_mut_ptr().cast::<sockaddr>();
    // SAFETY: `tail` is writable for `len` bytes.
    if unsafe { address::write(address, domain, pointer, &raw mut len) }.is_ok() {
        let whole = before.len() + len as usize;
        control.put(level, kind, data.get(..whole).unwrap_or(&data));
    }
}

/// Tells of an error of the error queue; flags for `msg_flags`.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn tell_error(message: &mut msghdr, error: &SocketError, domain: Domain) -> c_int {
    let origin = match error.origin {
        ErrorOrigin::Local => 1,
        ErrorOrigin::Icmp => 2,
        ErrorOrigin::IcmpV6 => 3,
    };
    let mut extended = [0; 16];
    extended[..4].copy_from_slice(&error.errno.to_ne_bytes());
    extended[4..7].copy_from_slice(&[origin, error.kind, error.code]);
    extended[8..12].copy_from_slice(&error.info.to_ne_bytes());
    let tell = |control: &mut Control| put_error(control, &extended, error.offender, domain);
    // SAFETY: the caller's.
    let flags = unsafe { fill(message, tell) };
    flags | libc::MSG_ERRQUEUE
}

/// What a program sends along.
#[derive(Clone, Copy, Debug, Default)]
pub struct Along {
    pub info: SendInfo,
    /// SO_TIMESTAMPING's flags for this send, instead of the socket's.
    pub stamping: Option<u32>,
    /// SCM_TS_OPT_ID.
    pub stamp_id: Option<u32>,
}

/// What a program sends along: EINVAL where it makes no sense. Of a stream's, what is not SOL_SOCKET's is nothing to it, as to Linux.
///
/// # Safety
/// `message` must be a valid msghdr for sending.
pub unsafe fn read(message: &msghdr, live: Live<'_>) -> io::Result<Along> {
    let sender = Sender {
        kind: live.state.kind,
        domain: live.state.domain,
        numbers_stamps: live.state.numbers_stamps(),
    };
    // SAFETY: the caller's.
    unsafe { read_of(message, &sender) }
}

/// What counts of a socket that sends.
pub struct Sender {
    pub kind: Kind,
    pub domain: Domain,
    /// Time stamps of its sends have numbers.
    pub numbers_stamps: bool,
}

/// The same of whatever socket.
///
/// # Safety
/// `message` must be a valid msghdr for sending.
pub unsafe fn read_of(message: &msghdr, sender: &Sender) -> io::Result<Along> {
    // SAFETY: the caller's.
    let mut rest: &[u8] =
        unsafe { buffers::readable(message.msg_control, message.msg_controllen) }?;
    let mut along = Along::default();
    while let Some((header, data)) = rest.split_at_checked(HEADER) {
        let word = |at: usize| header[at..].first_chunk().copied().unwrap_or_default();
        let len = usize::from_ne_bytes(*header.first_chunk().unwrap_or(&[0; 8]));
        let what = (
            c_int::from_ne_bytes(word(8)),
            c_int::from_ne_bytes(word(12)),
        );
        let Some(data) = len.checked_sub(HEADER).and_then(|len| data.get(..len)) else {
            return fail(libc::EINVAL);
        };
        if what.0 == libc::SOL_SOCKET {
            take_of_socket(&mut along, what.1, data, sender)?;
        } else if sender.kind != Kind::Stream {
            take(&mut along.info, what, data, sender.domain)?;
        }
        rest = rest
            .get(len.next_multiple_of(size_of::<usize>())..)
            .unwrap_or_default();
    }
    Ok(along)
}

fn take_of_socket(along: &mut Along, kind: c_int, data: &[u8], sender: &Sender) -> io::Result<()> {
    match kind {
        libc::SO_TIMESTAMPING => {
            let flags = int(data)?.cast_unsigned();
            if flags & !OF_A_SEND != 0 {
                return fail(libc::EINVAL);
            }
            along.stamping = Some(flags);
        }
        SCM_TS_OPT_ID if sender.kind != Kind::Stream && sender.numbers_stamps => {
            along.stamp_id = Some(int(data)?.cast_unsigned());
        }
        libc::SCM_RIGHTS | libc::SCM_CREDENTIALS => {} // of Unix sockets
        _ => return fail(libc::EINVAL),
    }
    Ok(())
}

fn take(info: &mut SendInfo, what: (c_int, c_int), data: &[u8], domain: Domain) -> io::Result<()> {
    match what {
        (libc::SOL_UDP, UDP_SEGMENT) => match *data {
            [low, high] => info.segment = Some(u16::from_ne_bytes([low, high])),
            _ => return fail(libc::EINVAL),
        },
        (libc::SOL_UDP, _) => return fail(libc::EINVAL),
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let Ok::<[u8; 12], _>([a, b, c, d, e, f, g, h, ..]) = data.try_into() else {
                return fail(libc::EINVAL);
            };
            info.interface = index(u32::from_ne_bytes([a, b, c, d]))?;
            info.source = Some(IpAddr::from([e, f, g, h]));
        }
        (libc::IPPROTO_IP, libc::IP_TTL) => {
            info.ttl = Some(octet(int(data)?, 1)?);
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => match *data {
            [tos] => info.tos = Some(tos),
            _ => info.tos = Some(octet(int(data)?, 0)?),
        },
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if domain == Domain::V6 => {
            let (Some(ip), Some(number)) = (data.first_chunk::<16>(), data.get(16..20)) else {
                return fail(libc::EINVAL);
            };
            let number = number.try_into().map(u32::from_ne_bytes);
            info.interface = index(number.unwrap_or(0))?;
            info.source = Some(IpAddr::from(*ip));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) if domain == Domain::V6 => {
            info.ttl = default_or(int(data)?)?;
        }
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if domain == Domain::V6 => {
            info.tos = default_or(int(data)?)?;
        }
        (libc::IPPROTO_IP, _) => return fail(libc::EINVAL),
        (libc::IPPROTO_IPV6, _) if domain == Domain::V6 => return fail(libc::EINVAL),
        _ => {} // other levels are other protocols'
    }
    Ok(())
}

fn int(data: &[u8]) -> io::Result<c_int> {
    match data.try_into() {
        Ok(bytes) => Ok(c_int::from_ne_bytes(bytes)),
        Err(_) => fail(libc::EINVAL),
    }
}

fn octet(value: c_int, least: u8) -> io::Result<u8> {
    match u8::try_from(value) {
        Ok(value) if value >= least => Ok(value),
        _ => fail(libc::EINVAL),
    }
}

/// -1 is what the socket says.
fn default_or(value: c_int) -> io::Result<Option<u8>> {
    match value {
        -1 => Ok(None),
        value => octet(value, 0).map(Some),
    }
}

/// The number of an interface from its index; 0 is any.
fn index(index: u32) -> io::Result<Option<u8>> {
    match index.checked_sub(1) {
        None => Ok(None),
        Some(number) => match u8::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => fail(libc::ENODEV),
        },
    }
}

const _: () = assert!(HEADER == 16 && size_of::<usize>() == 8);
