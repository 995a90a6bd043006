//! What of a connection reaches the link, and what the link's neighbours hear of it.

use super::{
    uncut::{Sent, take, world as recorded},
    *,
};
use crate::{link::Segmentation, socket::SocketOption};

/// The IPv4 packets that were sent, and how often ARP asked.
fn split(sent: &Sent) -> (Vec<Vec<u8>>, usize) {
    let all = take(sent).into_iter().map(|(packet, _)| packet);
    let (ip, others): (Vec<_>, Vec<_>) = all.partition(|packet| packet[0] == 0x45);
    let asks = |packet: &&Vec<u8>| packet[0] == 0 && packet[6..8] == [0, 1];
    (ip, others.iter().filter(asks).count())
}

/// IP_TOS and IP_TTL of an open connection are its next packet's.
#[test]
fn a_connections_header_fields_change_with_its_options() {
    let (world, sent) = recorded(Segmentation::None);
    let (client, _server) = world.connection();
    let fields = |world: &World| {
        split(&sent);
        send(&client, b"x", None).unwrap();
        world.settle();
        let (packets, _) = split(&sent);
        assert_eq!(packets.len(), 1);
        (packets[0][1], packets[0][8])
    };
    let (usual, ttl) = fields(&world);
    assert_eq!((usual & !3, ttl), (0, 64));
    client
        .set_option(SocketOption::TypeOfService(0x48))
        .unwrap();
    client.set_option(SocketOption::Ttl(7)).unwrap();
    let (tos, ttl) = fields(&world);
    assert_eq!((tos & !3, ttl), (0x48, 7));
}

/// RFC 4861 §7.3.1, RFC 1122 §2.3.2.1 (4): acknowledgments say that a neighbour is there; no solicitation is sent while they come.
#[test]
fn a_neighbour_that_acknowledges_is_not_asked_for() {
    let (world, sent) = recorded(Segmentation::None);
    let (client, server) = world.connection();
    split(&sent);
    for _ in 0..120 {
        assert_eq!(send(&client, b"x", None), Ok(1));
        world.clock.advance(std::time::Duration::from_millis(900));
        world.pass(100);
        assert_eq!(receive(&server), Ok(b"x".to_vec()));
    }
    assert_eq!(split(&sent).1, 0, "two minutes");
}

/// What is sent again and again may be for a neighbour that is gone: it is asked for soon.
#[test]
fn a_neighbour_that_is_silent_is_asked_for() {
    let (world, sent) = recorded(Segmentation::None);
    let (client, server) = world.connection();
    send(&client, b"x", None).unwrap();
    world.pass(100);
    assert_eq!(receive(&server), Ok(b"x".to_vec()));
    split(&sent);
    send(&client, b"lost", None).unwrap();
    for _ in 0..100 {
        world.clock.advance(std::time::Duration::from_millis(100));
        while world.nets[0].poll() {}
    }
    let (packets, asked) = split(&sent);
    assert!(packets.len() > 2 && asked > 0, "{} packets", packets.len());
}

/// `netchan show links`: what was sent, and what waits for a link that is full.
#[test]
fn frames_that_wait_are_shown() {
    let options = wire::Options {
        ring: 8,
        ..wire::Options::default()
    };
    let world = World::over(&options, |builder| builder);
    let writer = world.bound(0, Kind::Datagram, "10.0.0.1:900");
    let there = Some(to("10.0.0.2:700"));
    send(&writer, b"first", there).unwrap();
    world.settle();
    let shown = |world: &World, what: &str| {
        let rows = world.nets[0].show("links").unwrap();
        rows.as_array().unwrap()[0][what].as_u64().unwrap()
    };
    assert_eq!(shown(&world, "queued_frames"), 0);
    let (packets, bytes) = (shown(&world, "tx_packets"), shown(&world, "tx_bytes"));
    assert!(packets > 3 && bytes > 40 * packets);
    for _ in 0..20 {
        send(&writer, b"more", there).unwrap();
        world.nets[0].poll();
    }
    assert_eq!(
        shown(&world, "tx_packets") - packets,
        8,
        "what its ring holds"
    );
    assert_eq!(shown(&world, "queued_frames"), 12);
    world.settle();
    assert_eq!(shown(&world, "queued_frames"), 0);
    assert_eq!(shown(&world, "tx_packets") - packets, 20);
}

/// `netchan set icmp.rate_limit`.
#[test]
fn the_limit_of_icmp_errors_is_shown_as_it_is() {
    let world = World::new();
    let host = &world.nets[0].stack().control.host;
    for limited in [false, true] {
        host.limit_icmp(limited);
        assert_eq!(host.limits_icmp(), limited);
    }
}

/// IPV6_MULTICAST_HOPS and IP_MULTICAST_TTL are of what goes to groups, and of nothing else.
#[test]
fn groups_have_hops_of_their_own() {
    use crate::socket::Multicast;
    let (world, sent) = recorded(Segmentation::None);
    for (domain, group, other, at) in [
        (Domain::V4, "224.0.0.251:700", "10.0.0.2:700", 8),
        (Domain::V6, "[ff02::fb]:700", "[fd77::2]:700", 7),
    ] {
        let socket = Socket::new(&world.nets[0], domain, Kind::Datagram).unwrap();
        let hops = if domain == Domain::V4 {
            Multicast::Ttl(5)
        } else {
            Multicast::Hops(5)
        };
        socket.set_option(SocketOption::Multicast(hops)).unwrap();
        let hops_to = |there: &str| {
            take(&sent);
            send(&socket, b"x", Some(to(there))).unwrap();
            world.settle();
            let all = take(&sent);
            let (packet, _) = all.iter().find(|(p, _)| p[0] >> 4 != 0).unwrap();
            packet[at]
        };
        assert_eq!((hops_to(group), hops_to(other)), (5, 64), "{group}");
    }
}
