//! What getsockopt answers of each row of the table.

use std::{ffi::c_void, ptr};

use libc::{c_int, socklen_t};
use netchan::socket::{
    Domain, Kind, Socket,
    options::{Get, LEVELS, Level, Row, UNSUPPORTED},
};

use super::{get, has_level};
use crate::{
    errno,
    state::{Live, SocketState},
};

/// All rows, each with its level's number.
fn rows() -> impl Iterator<Item = (c_int, &'static Row)> {
    let of = |level: &'static Level| level.rows.iter().map(|row| (level.number, row));
    LEVELS.iter().flat_map(of)
}

/// Levels, numbers and names of what there is not, with what it is told.
fn lacking() -> impl Iterator<Item = (c_int, c_int, &'static str, c_int)> {
    UNSUPPORTED.iter().flat_map(|lacking| {
        let one = |&(number, name)| (lacking.level, number, name, lacking.code);
        lacking.options.iter().map(one)
    })
}

/// What an unknown option is told.
fn is_unknown(code: c_int) -> bool {
    [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&code)
}

/// What getsockopt says to one socket.
fn read(live: Live<'_>, level: c_int, name: c_int) -> Result<(), c_int> {
    let mut value = [0_u8; 512];
    let mut len: socklen_t = 512;
    let at = ptr::from_mut(&mut value).cast::<c_void>();
    // SAFETY: both are there, and `len` says how long the first is.
    let got = unsafe { get(live, level, name, at, ptr::from_mut(&mut len)) };
    got.map(|_| ()).map_err(|e| errno::code(&e))
}

/// Whether a row says that sockets of a kind have the option.
fn is_said_of(row: &Row, kind: Kind) -> bool {
    let name = match kind {
        Kind::Stream => "tcp",
        Kind::Datagram => "udp",
        Kind::Ping => "ping",
    };
    row.sockets == "all" || row.sockets.split(", ").any(|known| known == name)
}

#[test]
fn each_row_is_read_as_it_says() {
    let net = netchan::Net::builder()
        .link("loop")
        .and_then(netchan::Builder::start)
        .expect("a stack");
    let kinds = [Domain::V4, Domain::V6]
        .into_iter()
        .flat_map(|domain| [Kind::Stream, Kind::Datagram, Kind::Ping].map(|kind| (domain, kind)));
    let sockets: Vec<(SocketState, Socket)> = kinds
        .map(|(domain, kind)| {
            let socket = Socket::new(&net, domain, kind).expect("a socket");
            (SocketState::new(domain, kind), socket)
        })
        .collect();
    for (state, socket) in &sockets {
        let live = Live {
            fd: -1,
            state,
            socket,
        };
        let asked = (state.domain, state.kind);
        for (level, row) in rows() {
            let answer = read(live, level, row.number);
            if matches!(row.get, Get::No) {
                assert!(answer.is_err_and(is_unknown), "{}, {asked:?}", row.name);
            } else if is_said_of(row, state.kind) && has_level(state, level) {
                assert!(!answer.is_err_and(is_unknown), "{}, {asked:?}", row.name);
            }
        }
        for (level, number, name, code) in lacking() {
            let answer = read(live, level, number);
            assert!(answer.is_err_and(is_unknown), "{name}, {asked:?}");
            if has_level(state, level) {
                assert_eq!(answer, Err(code), "{name}, {asked:?}");
            }
        }
    }
}
