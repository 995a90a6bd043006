//! SO_BINDTODEVICE and SO_BINDTOIFINDEX as getsockopt(2) answers them: by the stack's own numbers for its links, from 1.

use std::io;

use libc::c_int;

use super::{SocketOption, row::Value, setting::NAME};
use crate::{
    errno::{error, fail},
    net::Net,
    socket::Socket,
};

/// The link that a socket is bound to.
fn bound(socket: &Socket) -> io::Result<Option<u8>> {
    match socket.option(SocketOption::Device(None))? {
        SocketOption::Device(number) => Ok(number),
        _ => Ok(None),
    }
}

/// SO_BINDTODEVICE: nothing where it is not bound, else the name with its NUL; as Linux, EINVAL without room for any.
pub(super) fn name_of(socket: &Socket, room: usize) -> io::Result<Vec<u8>> {
    let Some(number) = bound(socket)? else {
        return Ok(Vec::new());
    };
    if room < NAME {
        return fail(libc::EINVAL);
    }
    let name = interface_name(&socket.net, number).ok_or_else(|| error(libc::ENODEV))?;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME - 1);
    Ok(name[..=len].to_vec())
}

/// SO_BINDTOIFINDEX.
pub(super) fn index_of(socket: &Socket) -> io::Result<Value> {
    Ok(Value::Int(
        bound(socket)?.map_or(0, |number| c_int::from(number) + 1),
    ))
}

/// A link's name as struct ifreq has it; `None`: there is no link with this number.
pub fn interface_name(net: &Net, number: u8) -> Option<[u8; NAME]> {
    let name = net.link_name(number)?;
    let name = name.as_bytes();
    let mut bytes = [0; NAME];
    let len = name.len().min(NAME - 1);
    bytes[..len].copy_from_slice(&name[..len]);
    Some(bytes)
}
