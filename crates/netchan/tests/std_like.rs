//! What std's sockets can be asked, netchan's can, with the same answers.

use std::{
    io::ErrorKind,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use netchan::{
    Net, TcpStream,
    socket::{Domain, Kind, Socket},
};

fn net() -> Net {
    let builder = Net::builder().link("loop").unwrap();
    builder.address("10.0.0.1/24").unwrap().start().unwrap()
}

/// The same calls on a socket of std's, over the kernel's loopback, and on one of netchan's, over its own address.
macro_rules! same {
    ($std:expr, $ours:expr, |$socket:ident| $($call:expr),+ $(,)?) => {$(
        let std = {
            let $socket = $std;
            format!("{:?}", $call.map_err(|e| e.kind()))
        };
        let ours = {
            let $socket = $ours;
            format!("{:?}", $call.map_err(|e| e.kind()))
        };
        assert_eq!(std, ours, "{}", stringify!($call));
    )+};
}

const TIME: Option<Duration> = Some(Duration::from_secs(3));

#[test]
fn streams_and_listeners_answer_as_std() {
    let net = net();
    let ours = net.tcp().listen("10.0.0.1:0").unwrap();
    let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    same!(
        &std,
        &ours,
        |l| l.ttl(),
        l.set_ttl(9),
        l.ttl(),
        l.take_error(),
        l.set_nonblocking(true),
        l.accept().map(drop),
    );
    let ours_stream = net.tcp().connect(ours.local_addr().unwrap()).unwrap();
    let std_stream = std::net::TcpStream::connect(std.local_addr().unwrap()).unwrap();
    same!(
        &std_stream,
        &ours_stream,
        |s| s.nodelay(),
        s.set_nodelay(true),
        s.nodelay(),
        s.read_timeout(),
        s.set_read_timeout(TIME),
        s.read_timeout(),
        s.set_read_timeout(Some(Duration::ZERO)),
        s.write_timeout(),
        s.set_write_timeout(TIME),
        s.write_timeout(),
        s.set_ttl(7),
        s.ttl(),
        s.take_error(),
        s.try_clone().map(drop),
    );
    assert_eq!(
        ours_stream.set_ttl(0).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        ours_stream.set_ttl(256).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let text = format!("{ours_stream:?} {ours:?} {net:?}");
    for part in [
        "TcpStream { local: Some(10.0.0.1:",
        "TcpListener { local: Some(",
        "Net { regime: AppChannel",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn datagram_sockets_answer_as_std() {
    let net = net();
    let ours = net.udp().bind(("10.0.0.1", 0)).unwrap();
    let std = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    same!(
        &std,
        &ours,
        |s| s.peer_addr().map(drop),
        s.broadcast(),
        s.set_broadcast(true),
        s.broadcast(),
        s.write_timeout(),
        s.set_write_timeout(TIME),
        s.write_timeout(),
        s.set_read_timeout(TIME),
        s.read_timeout(),
        s.set_ttl(5),
        s.ttl(),
        s.take_error(),
        s.send_to(b"x", &[] as &[SocketAddr])
            .map_err(drop)
            .map_err(|()| std::io::Error::from(ErrorKind::InvalidInput)),
    );
    ours.connect(ours.local_addr().unwrap()).unwrap();
    assert_eq!(ours.peer_addr().unwrap(), ours.local_addr().unwrap());
    ours.try_clone().unwrap().send(b"to itself").unwrap();
    let mut block = [0; 16];
    assert_eq!(ours.recv(&mut block).unwrap(), 9);
}

/// Of several addresses the first that works; none is an error.
#[test]
fn addresses_are_what_std_takes() {
    let net = net();
    let listener = net
        .tcp()
        .listen(SocketAddr::from(([10, 0, 0, 1], 80)))
        .unwrap();
    let mut two = ["10.0.0.1:81", "10.0.0.1:80"].map(|a| a.parse::<SocketAddr>().unwrap());
    let stream = net.tcp().connect(&two[..]).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    two[1].set_port(82);
    let refused = net.tcp().connect(&two[..]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let none: Vec<SocketAddr> = "10.0.0.1:80".to_socket_addrs().unwrap().skip(1).collect();
    let none = net.tcp().connect(&none[..]).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    assert!(net.tcp().listen("no port").is_err());

    let socket = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
    let _ = socket.connect(listener.local_addr().unwrap());
    let stream = TcpStream::from_socket(socket);
    listener.accept().unwrap();
    let (_accepted, from) = listener.accept().unwrap();
    assert_eq!(stream.local_addr().unwrap(), from);
}
