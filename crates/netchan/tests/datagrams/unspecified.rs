//! Datagrams of a host to itself, by 0.0.0.0 and ::.

use super::*;

/// 0.0.0.0 and :: as a destination are this host, sent to or connected to.
#[test]
fn a_datagram_to_the_unspecified_address_reaches_this_host() {
    let pair = Pair::new();
    for (domain, unspecified) in [(Domain::V4, "0.0.0.0:53"), (Domain::V6, "[::]:53")] {
        let to: SocketAddr = unspecified.parse().unwrap();
        let [server, other] = pair.sockets(domain);
        let client = Socket::new(&pair.nets[0], domain, Kind::Datagram).unwrap();
        let mut room = [0; 16];
        assert_eq!(send(&client, b"sent", to).unwrap(), 4);
        pair.turn();
        let got = receive(&server, &mut room).unwrap();
        assert_eq!(&room[..got.len], b"sent", "{to}");
        assert_eq!(got.from.unwrap().ip(), pair.at(domain, 0).ip(), "{to}");

        client.connect(to).unwrap();
        assert_eq!(client.peer_address().unwrap(), pair.at(domain, 0));
        assert_eq!(client.send(&[IoSlice::new(b"more")], None).unwrap(), 4);
        pair.turn();
        let got = receive(&server, &mut room).unwrap();
        assert_eq!(&room[..got.len], b"more", "{to}");
        assert_eq!(errno(receive(&other, &mut room)), libc::EAGAIN);
    }
}
