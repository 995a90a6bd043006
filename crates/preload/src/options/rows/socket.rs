//! Options of SOL_SOCKET (socket(7)).

use std::{io, sync::atomic::Ordering::Relaxed, time::Duration};

use libc::c_int;
use netchan::socket::{Domain, Kind, SocketOption};

use super::super::{
    device,
    row::{ALL, Decides, Get, Row, Set, Value, asked, both, get, option, row, set},
};
use crate::{
    address,
    asked::Ask,
    diagnosis, errno,
    errno::fail,
    limits,
    setting::{Device, Setting, unsupported},
    stamping,
    state::Live,
    values::{
        flag, forced, in_range, int, invalid, linger, low_water, rate, size, timeval, word,
        zero_or_one,
    },
};

#[rustfmt::skip] // a row a line
pub static ROWS: &[Row] = &[
    row(1, "SO_DEBUG", "flag", ALL, asked(Ask::Debug, flag))
        .privileged()
        .note("only kept"),
    row(2, "SO_REUSEADDR", "flag", ALL, option!(ReuseAddress, flag)),
    row(3, "SO_TYPE", "int", ALL, get(kind)),
    row(4, "SO_ERROR", "int", ALL, get(error)),
    row(5, "SO_DONTROUTE", "flag", ALL, asked(Ask::DontRoute, flag)).note("only kept"),
    row(6, "SO_BROADCAST", "flag", ALL, option!(Broadcast, flag)),
    row(7, "SO_SNDBUF", "bytes", ALL, option!(SendBuffer, send_buffer, twice))
        .note("reads twice what was set, as in Linux"),
    row(8, "SO_RCVBUF", "bytes", ALL, option!(ReceiveBuffer, receive_buffer, twice))
        .note("reads twice what was set, as in Linux"),
    row(9, "SO_KEEPALIVE", "flag", ALL, option!(KeepAlive, flag)),
    row(10, "SO_OOBINLINE", "flag", ALL, option!(UrgentInline, flag)),
    row(11, "SO_NO_CHECK", "flag", ALL, asked(Ask::NoCheck, flag)).note("only kept"),
    row(12, "SO_PRIORITY", "int", ALL, both(read_priority, priority))
        .privileged()
        .note("only kept; `IP_TOS` sets it, as in Linux"),
    row(13, "SO_LINGER", "struct linger", ALL, option!(Linger, linger, of_linger)),
    row(15, "SO_REUSEPORT", "flag", ALL, option!(ReusePort, flag)),
    row(18, "SO_RCVLOWAT", "bytes", ALL, option!(ReceiveLowWater, low_water)),
    row(20, "SO_RCVTIMEO_OLD", "struct timeval", ALL, both(read_receive_timeout, receive_timeout))
        .note("SO_RCVTIMEO where time_t has 64 bits; reads what was set, where Linux rounds up"),
    row(21, "SO_SNDTIMEO_OLD", "struct timeval", ALL, both(read_send_timeout, send_timeout))
        .note("SO_SNDTIMEO, likewise"),
    row(25, "SO_BINDTODEVICE", "name", ALL, (Set::To(read_device), Get::Within(device::name_of)))
        .of_any_length()
        .decides(Decides::ByLink)
        .note("names of links; one of the kernel's other interfaces leaves an undecided socket to the kernel"),
    row(29, "SO_TIMESTAMP_OLD", "flag", ALL, asked(Ask::Timestamp, flag))
        .note("SO_TIMESTAMP where time_t has 64 bits"),
    row(30, "SO_ACCEPTCONN", "flag", ALL, get(listens)),
    row(32, "SO_SNDBUFFORCE", "bytes", ALL, set(forced_send_buffer)).note("beyond the limit"),
    row(33, "SO_RCVBUFFORCE", "bytes", ALL, set(forced_receive_buffer)).note("beyond the limit"),
    row(35, "SO_TIMESTAMPNS_OLD", "flag", ALL, asked(Ask::TimestampNs, flag))
        .note("SO_TIMESTAMPNS, likewise"),
    row(36, "SO_MARK", "int", ALL, option!(Mark, word)).note("routes and modules see it"),
    row(37, "SO_TIMESTAMPING_OLD", "flags", ALL, both(read_stamping, stamping))
        .note(
            "SO_TIMESTAMPING: software's times; of a stream's sends without what was sent, as with OPT_TSONLY; of a datagram \
             those of the end of the call, with the packet, whose frame header names no addresses; a send may have flags of its own",
        ),
    row(38, "SO_PROTOCOL", "int", ALL, get(protocol)),
    row(39, "SO_DOMAIN", "int", ALL, get(domain)),
    row(40, "SO_RXQ_OVFL", "flag", ALL, asked(Ask::Drops, flag)).note("of streams only kept"),
    row(46, "SO_BUSY_POLL", "µs", ALL, both(read_busy_poll, busy_poll))
        .note(
            "how long a call that waits for the socket looks before it sleeps; poll and epoll as long as any of \
             their sockets says, or as `net.core.busy_poll`, where that is set",
        ),
    row(47, "SO_MAX_PACING_RATE", "bytes a second", ALL, option!(PacingRateMax, rate, Value::Rate))
        .note("unsigned int or unsigned long"),
    row(49, "SO_INCOMING_CPU", "int", ALL, both(read_incoming_cpu, incoming_cpu))
        .note(
            "reads what was set, else the shard's number; of sockets that share a port one that names the \
             processor goes first on which the thread runs that takes the packet in",
        ),
    row(55, "SO_MEMINFO", "9 words", ALL, get(memory)),
    row(60, "SO_ZEROCOPY", "flag", "tcp, udp", asked(Ask::ZeroCopy, zero_or_one))
        .refused_by_pings(libc::EOPNOTSUPP)
        .note("sends are copied, and told of as such at once"),
    row(62, "SO_BINDTOIFINDEX", "int", ALL, both(read_index, index))
        .decides(Decides::ByLink)
        .note("the stack's numbers, from 1"),
    row(69, "SO_PREFER_BUSY_POLL", "flag", ALL, asked(Ask::PreferBusyPoll, flag)).note("only kept"),
    row(70, "SO_BUSY_POLL_BUDGET", "int", ALL, (Set::Ignored(check_budget), Get::No)),
];

fn kind(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Int(match live.state.kind {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Datagram | Kind::Ping => libc::SOCK_DGRAM,
    }))
}

fn protocol(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Int(match (live.state.kind, live.state.domain) {
        (Kind::Stream, _) => libc::IPPROTO_TCP,
        (Kind::Datagram, _) => libc::IPPROTO_UDP,
        (Kind::Ping, Domain::V4) => libc::IPPROTO_ICMP,
        (Kind::Ping, Domain::V6) => libc::IPPROTO_ICMPV6,
    }))
}

fn domain(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Int(address::family(live.state.domain)))
}

/// Reading takes it.
fn error(live: Live<'_>) -> io::Result<Value> {
    let error = live.socket.take_error();
    Ok(Value::Int(error.map_or(0, |error| errno::code(&error))))
}

fn listens(live: Live<'_>) -> io::Result<Value> {
    Ok(live.socket.is_listening().into())
}

fn memory(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Bytes(diagnosis::memory(live)))
}

fn send_buffer(value: &[u8]) -> io::Result<usize> {
    Ok(size(value)?.min(limits::send_buffer()))
}

fn receive_buffer(value: &[u8]) -> io::Result<usize> {
    Ok(size(value)?.min(limits::receive_buffer()))
}

/// Linux doubles what was set, for its own bookkeeping, and programs know it.
fn twice(size: usize) -> Value {
    Value::Int(c_int::try_from(size.saturating_mul(2)).unwrap_or(c_int::MAX))
}

fn forced_send_buffer(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Option(SocketOption::SendBuffer(forced(value)?)))
}

fn forced_receive_buffer(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Option(SocketOption::ReceiveBuffer(forced(value)?)))
}

fn read_priority(value: &[u8]) -> io::Result<Setting> {
    int(value).map(Setting::Priority)
}

fn priority(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Int(live.state.priority()))
}

fn of_linger(time: Option<Duration>) -> Value {
    let seconds = time.map_or(0, |time| {
        c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX)
    });
    let mut bytes = c_int::from(time.is_some()).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&seconds.to_ne_bytes());
    Value::Bytes(bytes)
}

fn read_receive_timeout(value: &[u8]) -> io::Result<Setting> {
    timeval(value).map(Setting::ReceiveTimeout)
}

fn receive_timeout(live: Live<'_>) -> io::Result<Value> {
    Ok(of_timeout(live.state.receive_timeout()))
}

fn read_send_timeout(value: &[u8]) -> io::Result<Setting> {
    timeval(value).map(Setting::SendTimeout)
}

fn send_timeout(live: Live<'_>) -> io::Result<Value> {
    Ok(of_timeout(live.state.send_timeout()))
}

fn of_timeout(timeout: Option<Duration>) -> Value {
    let time = timeout.unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let mut bytes = seconds.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&i64::from(time.subsec_micros()).to_ne_bytes());
    Value::Bytes(bytes)
}

fn read_device(value: &[u8]) -> io::Result<Setting> {
    Ok(Setting::Device(Device::named(value)))
}

fn read_index(value: &[u8]) -> io::Result<Setting> {
    Device::numbered(int(value)?).map(Setting::Device)
}

fn index(live: Live<'_>) -> io::Result<Value> {
    device::index_of(live).map(Value::Int)
}

fn read_stamping(value: &[u8]) -> io::Result<Setting> {
    stamping::parse(word(value)?).map(Setting::Stamping)
}

fn stamping(live: Live<'_>) -> io::Result<Value> {
    Ok(Value::Bytes(stamping::answer(live)))
}

fn read_busy_poll(value: &[u8]) -> io::Result<Setting> {
    let us = u32::try_from(int(value)?).map_err(|_| invalid())?;
    Ok(Setting::BusyPoll(us))
}

fn busy_poll(live: Live<'_>) -> io::Result<Value> {
    Ok(live.state.busy_poll_us.load(Relaxed).into())
}

fn check_budget(value: &[u8]) -> io::Result<()> {
    in_range(value, 0, c_int::from(u16::MAX)).map(|_| ())
}

fn read_incoming_cpu(value: &[u8]) -> io::Result<Setting> {
    int(value).map(Setting::IncomingCpu)
}

fn incoming_cpu(live: Live<'_>) -> io::Result<Value> {
    let shard = || c_int::try_from(live.socket.incoming_cpu()?).ok();
    let cpu = live.state.incoming_cpu().or_else(shard);
    Ok(Value::Int(cpu.unwrap_or(-1)))
}
