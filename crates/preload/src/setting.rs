//! What a program sets, read: kept while a socket is undecided, handed to netchan's socket then.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Shutdown},
    time::Duration,
};

use libc::c_int;
use netchan::{
    Net,
    socket::{AoChoice, AoInfo, AoPeerKey, Socket, SocketOption},
};

use crate::{asked::Ask, errno, errno::fail, process};

/// What a program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // few, and short-lived
pub enum Setting {
    /// netchan's own.
    Option(SocketOption),
    /// SO_RCVTIMEO.
    ReceiveTimeout(Option<Duration>),
    /// SO_SNDTIMEO.
    SendTimeout(Option<Duration>),
    /// What recvmsg(2) shall tell.
    Ask(Ask, bool),
    /// SO_TIMESTAMPING.
    Stamping(u32),
    /// SO_BUSY_POLL, in microseconds.
    BusyPoll(u32),
    /// SO_INCOMING_CPU.
    IncomingCpu(c_int),
    /// SO_PRIORITY.
    Priority(c_int),
    /// SO_BINDTODEVICE, SO_BINDTOIFINDEX.
    Device(Device),
    /// Keys of TCP-AO.
    Keys(Keys),
    /// shutdown(2), which has an effect although it fails.
    Shutdown(Shutdown),
    /// Taken without effect.
    Ignored,
}

/// Hands a setting to netchan's socket.
pub fn apply(socket: &Socket, setting: Setting) -> io::Result<()> {
    match setting {
        Setting::Option(option) => socket.set_option(option).map_err(unsupported),
        Setting::Keys(keys) => keys.apply(socket),
        Setting::Device(device) => device.apply(socket),
        Setting::Shutdown(how) => socket.shutdown(how),
        _ => Ok(()),
    }
}

/// An option that this kind of socket does not have.
pub fn unsupported(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported if errno::code(&error) != libc::EOPNOTSUPP => {
            errno::error(libc::ENOPROTOOPT)
        }
        _ => error,
    }
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
    /// SO_BINDTODEVICE: as Linux, up to the first NUL of 15 bytes.
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
    pub fn numbered(index: c_int) -> io::Result<Self> {
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
    pub fn apply(self, socket: &Socket) -> io::Result<()> {
        let number = match self {
            Self::Any => None,
            _ => match process::running().and_then(|net| self.find(net)) {
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
        key: AoPeerKey,
        current: bool,
        next: bool,
    },
    /// TCP_AO_DEL_KEY.
    Delete {
        network: (IpAddr, u8),
        /// Send id and receive id.
        ids: (u8, u8),
        choice: AoChoice,
    },
    /// TCP_AO_INFO.
    Set { info: AoInfo, counts: bool },
}

impl Keys {
    /// Does it.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
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
