//! Multicast with the kernel at the other end of a TAP: it hears what we send to groups, and we hear what it sends.

use std::{
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
};

use netchan::Net;

use crate::{frames::PATIENCE, namespace};

/// Joins both groups, says what comes first in each, and sends it back to the group in capitals.
const PROGRAM: &str = "\
import socket, struct, sys
index = socket.if_nametoindex('nc0')
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
a.bind(('', 7700))
a.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.77.1.2') + socket.inet_aton('10.77.0.1'))
a.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.77.0.1'))
b = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
b.bind(('::', 7700))
b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, 'ff05::77:1') + struct.pack('=I', index))
b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
print('ready', flush=True)
for s, group, port in ((a, '239.77.1.2', 7701), (b, 'ff05::77:1', 7702)):
    s.settimeout(20)
    text, source = s.recvfrom(100)
    s.sendto(text.upper(), (group, port))
    print(source[0], text.decode(), flush=True)
";

#[test]
fn the_kernel_hears_our_groups_and_we_hear_its() {
    namespace::with_tap(
        "groups::the_kernel_hears_our_groups_and_we_hear_its",
        || {
            let builder = Net::builder().link("tap:nc0,peer=10.77.0.1/24;fd77::1/64");
            let builder = builder.unwrap().address("10.77.0.2/24").unwrap();
            let net = builder.address("fd77::2/64").unwrap().start().unwrap();
            let (v4, v6) = (
                Ipv4Addr::new(239, 77, 1, 2),
                Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x77, 1),
            );
            let mut child = Command::new("python3")
                .args(["-c", PROGRAM])
                .stdout(Stdio::piped())
                .spawn()
                .expect("python3");
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");

            let a = net.udp().bind("0.0.0.0:7701").unwrap();
            a.join_multicast_v4(&v4, &Ipv4Addr::UNSPECIFIED).unwrap();
            let b = net.udp().bind("[::]:7702").unwrap();
            b.join_multicast_v6(&v6, 1).unwrap();
            let mut text = [0; 100];
            for (socket, group, text_out, from) in [
                (&a, SocketAddr::new(v4.into(), 7700), "four", "10.77.0.1"),
                (&b, SocketAddr::new(v6.into(), 7700), "six", "fd77::1"),
            ] {
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.send_to(text_out.as_bytes(), group).unwrap();
                let (len, source) = socket.recv_from(&mut text).unwrap();
                assert_eq!(text[..len], *text_out.to_uppercase().as_bytes());
                assert_eq!(source.ip().to_string(), from);
            }
            let mut rest = String::new();
            output.read_to_string(&mut rest).unwrap();
            child.wait().unwrap();
            assert_eq!(rest, "10.77.0.2 four\nfd77::2 six\n");
        },
    );
}
