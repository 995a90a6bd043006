//! The ioctls that tell of links' names: by the stack's own numbers for its links, from 1.

use std::io;

use libc::{c_int, c_ulong};
use netchan::socket::options::{Device, NAME, interface_name};

use crate::{buffers, errno, errno::fail, start};

/// A link's name as struct ifreq has it.
fn padded(number: u8) -> io::Result<[u8; NAME]> {
    interface_name(start::net(), number).ok_or_else(|| errno::error(libc::ENODEV))
}

/// A link's name by its number for programs.
pub fn name_by_number(number: u32) -> Option<[u8; NAME]> {
    padded(Device::Numbered(number).find(start::net())?).ok()
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
        let number = Device::named(&name).find(start::net())?;
        // SAFETY: as above: the index stands behind the name.
        unsafe { index.write_unaligned(c_int::from(number) + 1) };
        return Some(Ok(0));
    }
    // SAFETY: as above.
    let asked = u32::try_from(unsafe { index.read_unaligned() }).ok()?;
    let number = Device::Numbered(asked).find(start::net())?;
    Some(padded(number).map(|name| {
        // SAFETY: as above.
        unsafe { place.write_unaligned(name) };
        0
    }))
}
