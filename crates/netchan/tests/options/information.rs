//! What can be asked of a stream: TCP_INFO as Linux lays it out, TCP_CONGESTION, `show`.

use std::time::Duration;

use netchan::{
    CongestionControl, EcnMode,
    link::wire,
    socket::{Kind, SocketOption, TCP_INFO_LEN},
};

use super::{World, code, receive, send};

/// Fields of `struct tcp_info` by their places.
struct Facts([u8; TCP_INFO_LEN]);

impl Facts {
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }
    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap())
    }
}

#[test]
fn tcp_info_has_linux_places() {
    let wire = wire::Options {
        delay: Duration::from_millis(5),
        ..wire::Options::default()
    };
    let world = World::over(&wire, |builder| builder);
    let (client, server) = world.pair(&[]);
    assert_eq!(send(&client, &[7; 4000]), Ok(4000));
    world.pass(Duration::from_millis(60));
    assert_eq!(receive(&server, 8000).unwrap().len(), 4000);
    world.pass(Duration::from_millis(10)); // for the window's update
    let facts = |socket: &netchan::socket::Socket| Facts(socket.tcp_info_as_linux().unwrap());
    let sender = facts(&client);
    let (established, open, timestamps_sack_scale) = (1, 0, 7);
    assert_eq!(sender.0[..2], [established, open]);
    assert_eq!(sender.0[5] & 7, timestamps_sack_scale);
    assert_eq!((sender.word(16), sender.word(84)), (1448, 1460)); // snd_mss, advmss
    assert_eq!((sender.word(24), sender.word(144)), (0, 0)); // unacked, notsent
    assert!((10_000..40_000).contains(&sender.word(68)), "rtt");
    assert!(sender.word(148) >= 10_000, "min_rtt {}", sender.word(148));
    assert!(sender.word(8) >= 200_000, "rto");
    assert!((30..=70).contains(&sender.word(44)), "last_data_sent");
    assert_eq!(sender.word(76), 0x7fff_ffff); // ssthresh
    assert!(sender.word(80) >= 10, "cwnd in segments");
    assert_eq!(sender.long(112), u64::MAX); // max_pacing_rate
    assert!(sender.long(120) >= 4000, "bytes_acked");
    assert!(sender.word(228) > 60_000, "snd_wnd");
    let receiver = facts(&server);
    assert_eq!(receiver.long(128), 4000); // bytes_received
    assert_eq!(receiver.word(152), 3); // data_segs_in
    // segs_in, segs_out; as in Linux, the SYN that opened it is not counted.
    assert_eq!(receiver.word(140) + 1, sender.word(136));
}

#[test]
fn tcp_info_of_what_is_no_connection() {
    let world = World::plain();
    let fresh = world.socket(0, Kind::Stream);
    assert_eq!(fresh.tcp_info_as_linux().unwrap()[0], 7); // TCP_CLOSE
    let listener = world.listener();
    let client = world.socket(0, Kind::Stream);
    assert!(client.connect(super::server()).is_err());
    world.settle();
    let facts = Facts(listener.tcp_info_as_linux().unwrap());
    assert_eq!(facts.0[0], 10); // TCP_LISTEN
    assert_eq!((facts.word(24), facts.word(28)), (1, 8), "queue, backlog");
    assert!(
        world
            .socket(0, Kind::Datagram)
            .tcp_info_as_linux()
            .is_none()
    );
}

#[test]
fn congestion_control_is_each_sockets_own() {
    let world = World::with(|builder| builder.congestion(CongestionControl::NewReno));
    let asked = |socket: &netchan::socket::Socket| {
        let like = SocketOption::Congestion(CongestionControl::default());
        socket.option(like).unwrap()
    };
    let listener = world.listener();
    let dctcp = SocketOption::Congestion(CongestionControl::Dctcp);
    listener.set_option(dctcp).unwrap();
    let client = world.socket(0, Kind::Stream);
    assert_eq!(
        asked(&client),
        SocketOption::Congestion(CongestionControl::NewReno),
        "the stack's"
    );
    let bbr = SocketOption::Congestion(CongestionControl::Bbr);
    client.set_option(bbr).unwrap();
    let accepted = world.connect(&client, &listener);
    assert_eq!((asked(&client), asked(&accepted)), (bbr, dctcp));
    let runs = |socket: &netchan::socket::Socket| socket.tcp_info().unwrap().sending.congestion;
    assert_eq!(runs(&accepted), CongestionControl::Dctcp);
    let reno = SocketOption::Congestion(CongestionControl::NewReno);
    client.set_option(reno).unwrap();
    assert_eq!(runs(&client), CongestionControl::NewReno, "at once");
    let datagram = world.socket(0, Kind::Datagram);
    assert_eq!(code(datagram.set_option(bbr)), Err(libc::ENOPROTOOPT));
}

#[test]
fn settings_say_how_tcp_is_set() {
    let world = World::with(|builder| builder.ecn(EcnMode::Classic).pacing(true));
    let rows = world.nets[0].show("settings").unwrap();
    let setting = |name: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name}: {rows:?}"))["value"].clone()
    };
    assert_eq!(setting("tcp.ecn"), "classic");
    assert_eq!(setting("tcp.pacing"), true);
    assert_eq!(setting("tcp.congestion"), "cubic");
}
