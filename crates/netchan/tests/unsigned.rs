//! A build without the feature `tcp-auth`: no key is made, and a socket that is to have one is told so instead of going unsigned.
//! `cargo test -p netchan --no-default-features --test unsigned`.
#![cfg(not(feature = "tcp-auth"))]

use netchan::{
    Clock, Net, Threads,
    link::wire,
    socket::{AoAlgorithm, AoKey, Domain, Kind, Md5Key, Socket, SocketOption},
};

#[test]
fn no_key_is_made() {
    assert_eq!(Md5Key::new(b"secret"), None);
    for algorithm in [AoAlgorithm::HmacSha1, AoAlgorithm::Aes128Cmac] {
        assert_eq!(AoKey::new(algorithm, b"secret", 1, 2), None);
    }
}

/// `None` elsewhere takes a key away: a program that meant to sign would go unsigned.
#[test]
fn a_socket_that_is_to_sign_is_refused() {
    let (link, _end) = wire::pair(&wire::Options::default());
    let builder = Net::builder()
        .threads(Threads::Caller)
        .clock(Clock::new_virtual());
    let builder = builder.link_with(Box::new(link));
    let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
    let socket = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
    let refused = socket.set_option(SocketOption::Md5Key {
        peer: "10.0.0.2".parse().unwrap(),
        prefix: 32,
        key: Md5Key::new(b"secret"),
    });
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENOPROTOOPT));
}
