"""A host with loopback addresses alone: what leads nowhere, groups among it. What it prints is compared with the kernel's."""

import errno
import socket

GROUPS = {socket.AF_INET: "239.255.0.1", socket.AF_INET6: "ff05::1"}
ELSEWHERE = {socket.AF_INET: "10.1.2.3", socket.AF_INET6: "2001:db8::1"}
OWN = {socket.AF_INET: [None, "0.0.0.0", "127.0.0.1"], socket.AF_INET6: [None, "::", "::1"]}


def says(call, *arguments):
    try:
        result = call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok" if result is None else result


def new(family, own, kind=socket.SOCK_DGRAM):
    s = socket.socket(family, kind)
    if own:
        s.bind((own, 0))
    return s


def joins(s, family, group, interface):
    group = socket.inet_pton(family, group)
    if family == socket.AF_INET:
        return says(s.setsockopt, socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton(interface))
    return says(s.setsockopt, socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + bytes(4))


for family, group in GROUPS.items():
    for own in OWN[family]:
        for what, to in ("elsewhere", ELSEWHERE[family]), ("group", group):
            with new(family, own) as s:
                print(own, "datagram to", what, says(s.sendto, b"x", (to, 9123)))
            with new(family, own) as s:
                print(own, "datagrams connect", what, says(s.connect, (to, 9123)))
            with new(family, own, socket.SOCK_STREAM) as s:
                print(own, "stream connects", what, says(s.connect, (to, 9123)))
        with new(family, own) as s:
            any_host = "0.0.0.0" if family == socket.AF_INET else "::"
            print(own, "joins", joins(s, family, group, any_host), says(s.sendto, b"x", (group, 9123)))

for own in OWN[socket.AF_INET]:
    group = GROUPS[socket.AF_INET]
    with new(socket.AF_INET, own) as s, new(socket.AF_INET, None) as member:
        member.bind(("0.0.0.0", 0))
        member.settimeout(20)
        to = group, member.getsockname()[1]
        print(own, "by loopback joins", joins(member, socket.AF_INET, group, "127.0.0.1"))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        print(own, "by loopback", says(s.sendto, b"text", to), says(member.recv, 10))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("0.0.0.0"))
        print(own, "by any", says(s.sendto, b"text", to))
        print(own, "connects", says(s.connect, to), says(s.send, b"text"), s.getsockname()[0])
