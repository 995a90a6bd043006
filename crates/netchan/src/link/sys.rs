//! The kernel's calls that no safe wrapper has: the one room of `link` where unsafe stands.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What TUNSETIFF takes and gives (`struct ifreq` with its flags; 40 bytes on every 64-bit Linux).
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// Turns the result of a libc call into an [`io::Result`].
fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes the descriptor of `/dev/net/tun` an end of the TAP `name`, which may end in `%d` for the kernel to fill; the name it has.
pub fn tap_attach(tun: BorrowedFd<'_>, name: &str, vnet_header: bool) -> io::Result<String> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if vnet_header {
        flags |= libc::IFF_VNET_HDR;
    }
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: libc::c_short::try_from(flags).map_err(|_| io::ErrorKind::InvalidInput)?,
        rest: [0; 22],
    };
    // One byte stays zero: the kernel wants the end of a C string.
    let room = request
        .name
        .get_mut(..name.len())
        .filter(|_| name.len() < libc::IFNAMSIZ);
    room.ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is by layout and size, and keeps no pointer to it.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let end = request
        .name
        .iter()
        .position(|&b| b == 0)
        .unwrap_or(request.name.len());
    Ok(String::from_utf8_lossy(&request.name[..end]).into_owned())
}

/// Tells the kernel that this end takes frames whose checksum is still to be filled in, and TCP segments not yet cut to the MTU.
pub fn tap_take_offloads(tun: BorrowedFd<'_>) -> io::Result<()> {
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offloads),
        )
    })
}
