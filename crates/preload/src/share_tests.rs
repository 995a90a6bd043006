//! Names survive the kernel, and what has none is told from what has.

use std::{net::SocketAddrV6, os::fd::AsRawFd};

use netchan::socket::Domain;

use super::*;

fn names() -> Vec<Name> {
    let mut all = Vec::new();
    let addresses = [
        "10.0.0.1:80",
        "[fe80::1]:65535",
        "[::]:0",
        "[::ffff:10.0.0.1]:7",
    ];
    for role in [Role::Connection, Role::Listener, Role::Datagrams] {
        for domain in [Domain::V4, Domain::V6] {
            for (local, peer) in addresses.iter().zip(addresses.iter().rev()) {
                let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
                all.push(Name {
                    role,
                    domain,
                    number: u64::MAX - 1,
                    local,
                    peer,
                    asked: 0x8000_0001,
                });
            }
        }
    }
    all
}

/// IPv4 inside IPv6 comes back as IPv4, which is written as the domain asks.
fn unmapped(mut name: Name) -> Name {
    for address in [&mut name.local, &mut name.peer] {
        address.set_ip(address.ip().to_canonical());
    }
    name
}

#[test]
fn a_name_comes_back_from_the_kernel() {
    for name in names() {
        let (shared, ours) = pair(name.role).unwrap();
        assert_eq!(name_of(shared.as_raw_fd()), None, "not named yet");
        set_name(shared.as_fd(), &name.encode()).unwrap();
        assert_eq!(name_of(shared.as_raw_fd()), Some(unmapped(name)));
        let again = shared.try_clone().unwrap();
        drop(shared);
        assert_eq!(name_of(again.as_raw_fd()), Some(unmapped(name)));
        assert_eq!(name_of(ours.as_raw_fd()), None);
        // The same again has another name.
        let (other, _ours) = pair(name.role).unwrap();
        set_name(other.as_fd(), &name.encode()).unwrap();
    }
}

#[test]
fn scope_of_an_address_is_kept() {
    let local = SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 7).into();
    let name = Name {
        local,
        ..names()[0]
    };
    assert_eq!(Name::decode(&name.encode()).unwrap().local, local);
}

#[test]
fn other_bytes_are_no_name() {
    let bytes = names()[0].encode();
    assert_eq!(Name::decode(&bytes[1..]), None);
    assert_eq!(Name::decode(&[]), None);
    let mut wrong = bytes;
    wrong[7] += 1; // of another version
    assert_eq!(Name::decode(&wrong), None);
    assert_eq!(name_of(-1), None);
    assert_eq!(
        name_of(std::fs::File::open("/dev/null").unwrap().as_raw_fd()),
        None
    );
}
