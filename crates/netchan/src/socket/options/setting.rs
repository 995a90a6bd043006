//! What setsockopt's bytes mean, once they are read: a socket takes it by [`Setting::apply`].

use std::{io, net::IpAddr, time::Duration};

use libc::c_int;

use super::{SocketOption, row::Value};
use crate::{
    errno::fail,
    net::Net,
    socket::{AoChoice, AoInfo, AoPeerKey, Socket},
};

/// What a program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // few, and short-lived
pub enum Setting {
    /// The socket's own.
    Option(SocketOption),
    /// What the caller of the socket keeps.
    Caller(CallerOption),
    /// SO_BINDTODEVICE, SO_BINDTOIFINDEX.
    Device(Device),
    /// Keys of TCP-AO.
    Keys(Keys),
    /// Taken without effect.
    Ignored,
}

impl Setting {
    /// Does what it says to a socket; what its caller keeps is the caller's.
    ///
    /// # Errors
    /// As [`Socket::set_option`], [`Socket::ao_add_key`]; ENODEV for a link that there is not.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Option(option) => socket.set_option(*option),
            Self::Keys(keys) => keys.apply(socket),
            Self::Device(device) => device.apply(socket),
            Self::Caller(_) | Self::Ignored => Ok(()),
        }
    }
}

/// Options that change nothing at a socket, but what its caller does: how long calls wait, what recvmsg(2) tells. The caller keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerOption {
    /// SO_RCVTIMEO; `None` waits for ever.
    ReceiveTimeout(Option<Duration>),
    /// SO_SNDTIMEO; `None` waits for ever.
    SendTimeout(Option<Duration>),
    /// One that is on or off.
    Flag(CallerFlag, bool),
    /// SO_TIMESTAMPING, its flags.
    Timestamping(u32),
    /// SO_BUSY_POLL, microseconds.
    BusyPoll(u32),
    /// SO_INCOMING_CPU; -1: none.
    IncomingCpu(c_int),
    /// SO_PRIORITY.
    Priority(c_int),
}

/// What a caller keeps that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // named as in socket(7), tcp(7), ip(7), ipv6(7)
pub enum CallerFlag {
    Timestamp,
    TimestampNs,
    Drops,
    PacketInfo,
    Ttl,
    Tos,
    OriginalDestination,
    PacketInfoV6,
    HopLimit,
    TrafficClass,
    OriginalDestinationV6,
    Unread,
    /// SO_ZEROCOPY: of sends with MSG_ZEROCOPY that their memory is free.
    ZeroCopy,
    /// SO_NO_CHECK, which is only kept: what is sent has its checksum.
    NoCheck,
    /// SO_PREFER_BUSY_POLL, which is only kept.
    PreferBusyPoll,
    /// SO_DEBUG, SO_DONTROUTE, TCP_THIN_LINEAR_TIMEOUTS and IP_BIND_ADDRESS_NO_PORT, which are only kept.
    Debug,
    DontRoute,
    ThinLinearTimeouts,
    BindAddressNoPort,
    /// SIOCGSTAMP was called: when a datagram came is kept.
    Arrival,
}

impl CallerOption {
    /// As getsockopt(2) answers.
    pub fn value(self) -> Value {
        match self {
            Self::ReceiveTimeout(timeout) | Self::SendTimeout(timeout) => timeval(timeout),
            Self::Flag(_, on) => Value::from(on),
            // The flags, and no hardware clock.
            Self::Timestamping(flags) => Value::Bytes([flags.to_ne_bytes(), [0; 4]].concat()),
            Self::BusyPoll(us) => Value::from(us),
            Self::IncomingCpu(value) | Self::Priority(value) => Value::Int(value),
        }
    }
}

/// A struct timeval.
fn timeval(timeout: Option<Duration>) -> Value {
    let time = timeout.unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let us = i64::from(time.subsec_micros());
    Value::Bytes([seconds.to_ne_bytes(), us.to_ne_bytes()].concat())
}

/// IFNAMSIZ.
pub const NAME: usize = 16;

/// What a socket is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Nothing.
    Any,
    /// A name, and how long it is.
    Named([u8; NAME], usize),
    /// An index.
    Numbered(u32),
}

impl Device {
    /// SO_BINDTODEVICE or struct ifreq: as Linux, up to the first NUL of 15 bytes.
    pub fn named(value: &[u8]) -> Self {
        let value = value.get(..NAME - 1).unwrap_or(value);
        let name = value.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let mut bytes = [0; NAME];
        bytes[..name.len()].copy_from_slice(name);
        match name {
            [] => Self::Any,
            _ => Self::Named(bytes, name.len()),
        }
    }

    /// SO_BINDTOIFINDEX.
    pub(super) fn numbered(index: c_int) -> io::Result<Self> {
        match u32::try_from(index) {
            Ok(0) => Ok(Self::Any),
            Ok(index) => Ok(Self::Numbered(index)),
            Err(_) => fail(libc::EINVAL),
        }
    }

    /// The link, if there is one.
    pub fn find(&self, net: &Net) -> Option<u8> {
        match self {
            Self::Any => None,
            Self::Named(bytes, len) => {
                net.link_named(std::str::from_utf8(bytes.get(..*len)?).ok()?)
            }
            Self::Numbered(index) => {
                let number = u8::try_from(index.checked_sub(1)?).ok()?;
                net.link_name(number).map(|_| number)
            }
        }
    }

    /// Binds a socket.
    fn apply(self, socket: &Socket) -> io::Result<()> {
        let number = match self {
            Self::Any => None,
            _ => match self.find(&socket.net) {
                Some(number) => Some(number),
                None => return fail(libc::ENODEV),
            },
        };
        socket.set_option(SocketOption::Device(number))
    }
}

/// What a program does with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // few, and short-lived
pub enum Keys {
    /// TCP_AO_ADD_KEY.
    Add {
        /// The key, and the peers it is for.
        key: AoPeerKey,
        /// A connection signs with it from now on.
        current: bool,
        /// A connection's peer is asked to sign with it.
        next: bool,
    },
    /// TCP_AO_DEL_KEY.
    Delete {
        /// Address and prefix length.
        network: (IpAddr, u8),
        /// Send id and receive id.
        ids: (u8, u8),
        /// What takes its place.
        choice: AoChoice,
    },
    /// TCP_AO_INFO.
    Set {
        /// What is set.
        info: AoInfo,
        /// So are its counts.
        counts: bool,
    },
}

impl Keys {
    /// Does it.
    fn apply(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Add { key, current, next } => socket.ao_add_key(key, *current, *next),
            Self::Delete {
                network,
                ids,
                choice,
            } => socket.ao_delete_key(*network, *ids, *choice),
            Self::Set { info, counts } => socket.set_ao_info(*info, *counts),
        }
    }
}
