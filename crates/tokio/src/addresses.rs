//! Addresses as std takes them.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// What is said where there is no address at all.
pub fn none() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

/// What `call` gives for the first of the addresses for which it works; its last error where there is none.
pub fn first_of<T>(
    addresses: impl ToSocketAddrs,
    mut call: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = none();
    for address in addresses.to_socket_addrs()? {
        match call(address) {
            Err(error) => last = error,
            done => return done,
        }
    }
    Err(last)
}
