//! SO_BINDTODEVICE and SO_BINDTOIFINDEX, and the ioctls that tell of links' names: by the stack's own numbers for its links, from 1.

use std::io;

use libc::{c_int, c_ulong};
use netchan::{
    Net,
    socket::{Socket, SocketOption},
};

use super::parse::{SO_BINDTOIFINDEX, parse};
use crate::{buffers, errno, errno::fail, lifecycle, state::Live};

/// IFNAMSIZ.
const NAME: usize = 16;

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
    fn find(&self, net: &Net) -> Option<u8> {
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
            _ => match self.find(lifecycle::net()) {
                Some(number) => Some(number),
                None => return fail(libc::ENODEV),
            },
        };
        socket.set_option(SocketOption::Device(number))
    }
}

/// Whether an option names one of netchan's links: the socket is netchan's from then on.
pub fn decides(level: c_int, name: c_int, value: &[u8]) -> bool {
    let is_it = matches!(name, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX);
    if level != libc::SOL_SOCKET || !is_it {
        return false;
    }
    match parse(level, name, value) {
        Ok(super::Setting::Device(Device::Any)) | Err(_) => false,
        Ok(super::Setting::Device(device)) => device.find(lifecycle::net()).is_some(),
        Ok(_) => false,
    }
}

/// The link that a socket is bound to.
fn bound(live: Live<'_>) -> io::Result<Option<u8>> {
    match live.socket.option(SocketOption::Device(None))? {
        SocketOption::Device(number) => Ok(number),
        _ => Ok(None),
    }
}

/// What getsockopt says of SO_BINDTODEVICE: nothing where it is not bound, else the name with its NUL; as Linux, EINVAL without room for any.
pub fn name_of(live: Live<'_>, room: usize) -> io::Result<Vec<u8>> {
    let Some(number) = bound(live)? else {
        return Ok(Vec::new());
    };
    if room < NAME {
        return fail(libc::EINVAL);
    }
    padded(number).map(|name| {
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME - 1);
        name[..=len].to_vec()
    })
}

/// What getsockopt says of SO_BINDTOIFINDEX.
pub fn index_of(live: Live<'_>) -> io::Result<c_int> {
    Ok(bound(live)?.map_or(0, |number| c_int::from(number) + 1))
}

/// A link's name as struct ifreq has it.
fn padded(number: u8) -> io::Result<[u8; NAME]> {
    let name = lifecycle::net().link_name(number);
    let name = name.ok_or_else(|| errno::error(libc::ENODEV))?;
    let name = name.as_bytes();
    let mut bytes = [0; NAME];
    let len = name.len().min(NAME - 1);
    bytes[..len].copy_from_slice(&name[..len]);
    Ok(bytes)
}

/// A link's name by its number for programs.
pub fn name_by_number(number: u32) -> Option<[u8; NAME]> {
    padded(Device::Numbered(number).find(lifecycle::net())?).ok()
}

const SIOCGIFNAME: c_ulong = 0x8910;
const SIOCGIFINDEX: c_ulong = 0x8933;

/// SIOCGIFNAME and SIOCGIFINDEX, of netchan's links; `None`: another request, or a name or index that none of them has.
///
/// # Safety
/// For these two `argument` must be a pointer to a struct ifreq, or NULL.
pub unsafe fn control(request: c_ulong, argument: usize) -> Option<io::Result<usize>> {
    if !matches!(request, SIOCGIFNAME | SIOCGIFINDEX) {
        return None;
    }
    let place = argument as *mut [u8; NAME];
    let index = (argument + NAME) as *mut c_int;
    if buffers::is_bad(place) {
        return Some(fail(libc::EFAULT));
    }
    if request == SIOCGIFINDEX {
        // SAFETY: not NULL; the caller vouches for the rest.
        let name = unsafe { place.read_unaligned() };
        let number = Device::named(&name).find(lifecycle::net())?;
        // SAFETY: as above: the index stands behind the name.
        unsafe { index.write_unaligned(c_int::from(number) + 1) };
        return Some(Ok(0));
    }
    // SAFETY: as above.
    let asked = u32::try_from(unsafe { index.read_unaligned() }).ok()?;
    let number = Device::Numbered(asked).find(lifecycle::net())?;
    Some(padded(number).map(|name| {
        // SAFETY: as above.
        unsafe { place.write_unaligned(name) };
        0
    }))
}
