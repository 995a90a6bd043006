#!/usr/bin/env python3
"""Ping sockets, a line for each answer: the same on the kernel's stack and on netchan's. Arguments: own and other address of both families."""
import errno
import select
import socket
import struct
import sys
import time

OWN = {4: sys.argv[1], 6: sys.argv[2]}
PEER = {4: sys.argv[3], 6: sys.argv[4]}
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
PROTOCOL = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
REQUEST = {4: 8, 6: 128}
REPLY = {4: 0, 6: 129}
WILDCARD = {4: "0.0.0.0", 6: "::"}
SO_TIMESTAMP = 29
IP_RECVERR, IPV6_RECVERR, IP_MTU_DISCOVER = 11, 25, 10


def answer(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, "timed out")


def say(version, what, *answers):
    print(f"v{version} {what}:", *answers, flush=True)


def ping(version):
    made = socket.socket(FAMILY[version], socket.SOCK_DGRAM, PROTOCOL[version])
    made.settimeout(3)
    return made


def echo(version, seq=1, data=b"data", kind=None, code=0, ident=0x5555):
    kind = REQUEST[version] if kind is None else kind
    return struct.pack("!BBHHH", kind, code, 0xABCD, ident, seq) + data


def total(message):
    """The internet checksum of an IPv4 message with its own: 0."""
    words = struct.unpack(f"!{len(message) // 2}H", message)
    value = sum(words)
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return 0xFFFF - value


def received(version, found, ident=None):
    if isinstance(found, str):
        return found
    message, sender = found
    kind, code, _, its, seq = struct.unpack("!BBHHH", message[:8])
    whole = total(message) if version == 4 and len(message) % 2 == 0 else 0
    same = ident is None or its == ident
    return kind == REPLY[version], code, same, seq, len(message), message[8:16], whole, sender


def echoes(version):
    for where in (PEER, OWN):
        one = ping(version)
        say(version, "type", one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
            one.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == PROTOCOL[version])
        say(version, "sent", answer(one.sendto, echo(version), (where[version], 7)))
        ident = one.getsockname()[1]
        say(version, "name", one.getsockname()[0], ident != 0)
        say(version, "received", received(version, answer(one.recvfrom, 2000), ident))
        one.sendto(echo(version, 2, b"x" * 3000), (where[version], 0))
        say(version, "in fragments", received(version, answer(one.recvfrom, 4000), ident))
        one.sendto(echo(version, 3, b""), (where[version], 0))
        say(version, "peeked", received(version, answer(one.recvfrom, 2000, socket.MSG_PEEK), ident))
        say(version, "cut", answer(one.recv_into, bytearray(4), 4, socket.MSG_TRUNC))
        one.setblocking(False)
        say(version, "empty", answer(one.recv, 10))


def binds(version):
    one, two, other = ping(version), ping(version), ping(10 - version)
    say(version, "shares", one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR))
    for each in two, other:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    say(version, "bind", answer(one.bind, (OWN[version], 77)), one.getsockname()[:2])
    say(version, "again", answer(one.bind, (OWN[version], 78)))
    say(version, "in use", answer(two.bind, (OWN[version], 77)))
    say(version, "in use by a wildcard", answer(two.bind, (WILDCARD[version], 77)))
    say(version, "in use by the other family", answer(other.bind, (WILDCARD[10 - version], 77)))
    say(version, "another's", answer(two.bind, (PEER[version], 79)))
    say(version, "a group", answer(two.bind, ("224.0.0.1" if version == 4 else "ff02::1", 79)))
    one.sendto(echo(version), (PEER[version], 0))
    say(version, "bound", received(version, answer(one.recvfrom, 2000), 77))
    udp = socket.socket(FAMILY[version], socket.SOCK_DGRAM)
    say(version, "of udp", answer(udp.bind, (WILDCARD[version], 77)))
    one.close()
    say(version, "free again", answer(two.bind, (WILDCARD[version], 77)), two.getsockname()[:2])
    one, two = ping(version), ping(version)
    for each in one, two:
        say(version, "shared", answer(each.bind, (OWN[version], 80)))
    two.sendto(echo(version), (PEER[version], 0))
    ready, _, _ = select.select([one, two], [], [], 3)
    say(version, "the last one has it", [(one, two).index(each) for each in ready])
    two.close()
    one.sendto(echo(version), (PEER[version], 0))
    say(version, "then the other", received(version, answer(one.recvfrom, 2000), 80))
    chosen = ping(version)
    say(version, "chosen", answer(chosen.bind, (WILDCARD[version], 0)), chosen.getsockname()[1] != 0)


def connects(version):
    one = ping(version)
    say(version, "no destination", answer(one.send, echo(version)))
    say(version, "connect", answer(one.connect, (PEER[version], 0)), answer(one.getpeername))
    say(version, "with a port", answer(one.connect, (PEER[version], 9)), answer(one.getpeername))
    say(version, "name", one.getsockname()[0])
    say(version, "send", answer(one.send, echo(version)))
    say(version, "received", received(version, answer(one.recvfrom, 2000)))
    say(version, "elsewhere", answer(one.sendto, echo(version, 9), (OWN[version], 0)))
    say(version, "from elsewhere", received(version, answer(one.recvfrom, 2000)))
    one.setblocking(False)
    say(version, "listen", answer(one.listen, 1), "accept", answer(one.accept))
    say(version, "shutdown", answer(one.shutdown, socket.SHUT_WR))
    say(version, "after it", answer(one.send, echo(version)))
    one = ping(version)
    say(version, "shutdown unconnected", answer(one.shutdown, socket.SHUT_RD))


def refusals(version):
    one = ping(version)
    to = (PEER[version], 0)
    for what, message in {
        "short": b"\x08\0\0\0\0\0\0",
        "nothing": b"",
        "a reply": echo(version, kind=REPLY[version]),
        "the other's request": echo(version, kind=REQUEST[10 - version]),
        "a code": echo(version, code=1),
        "a time stamp": echo(version, kind=13),
        "an error": echo(version, kind=3),
    }.items():
        say(version, what, answer(one.sendto, message, to))
    say(version, "out of band", answer(one.sendto, echo(version), socket.MSG_OOB, to))
    one.setblocking(False)
    say(version, "receive out of band", answer(one.recv, 10, socket.MSG_OOB))
    one.settimeout(3)
    say(version, "more", answer(one.sendto, echo(version), socket.MSG_MORE, to))
    say(version, "went", received(version, answer(one.recvfrom, 2000)))
    for extra in (65515, 65516, 65527, 65528, 65535, 65536):
        say(version, f"{extra} bytes", answer(one.sendto, echo(version, 1, bytes(extra - 8)), to))
    for level in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
        say(version, "other options", level, answer(one.setsockopt, level, 1, 1))
    if version == 4:
        say(version, "broadcast", answer(one.sendto, echo(version), ("255.255.255.255", 0)),
            answer(one.connect, ("255.255.255.255", 0)))
    else:
        say(version, "mapped", answer(one.sendto, echo(version), ("::ffff:" + PEER[4], 0)))


def waits(version):
    one = ping(version)
    one.settimeout(None)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    say(version, "timeout", answer(one.recv, 10))
    poll, epoll = select.poll(), select.epoll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    epoll.register(one, select.EPOLLIN)
    say(version, "poll", [event for _, event in poll.poll(0)], len(epoll.poll(0)))
    one.sendto(echo(version), (PEER[version], 0))
    say(version, "epoll", [event for _, event in epoll.poll(3)])
    say(version, "poll", [event for _, event in poll.poll(3000)])
    one.recv(100)
    say(version, "read", [event for _, event in poll.poll(0)], len(epoll.poll(0)))


def ancillary(version):
    one = ping(version)
    one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
    if version == 4:
        level, wanted = socket.IPPROTO_IP, (12, 8, 13)  # TTL, PKTINFO, TOS
    else:
        level, wanted = socket.IPPROTO_IPV6, (socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVPKTINFO, socket.IPV6_RECVTCLASS)
    for option in wanted:
        say(version, "asks", option, answer(one.setsockopt, level, option, 1), one.getsockopt(level, option))
    one.sendto(echo(version), (PEER[version], 0))
    message, told, flags, sender = one.recvmsg(2000, 500)
    for its, kind, data in sorted(told):
        if its == socket.SOL_SOCKET:
            data = len(data)
        elif len(data) == 12:
            data = data[4:].hex()  # the interface has another number
        elif len(data) == 20:
            data = data[:16].hex()
        else:
            data = data.hex()
        say(version, "told", its, kind, data)
    say(version, "flags", flags, sender)
    hops = (socket.IPPROTO_IP, socket.IP_TTL) if version == 4 else (level, socket.IPV6_UNICAST_HOPS)
    say(version, "hops", answer(one.setsockopt, *hops, 3), one.getsockopt(*hops))


def errors(version):
    """Hops used up on the way, a network that is closed, and what is too long."""
    closed, far = ("192.0.2.1", "198.51.100.1") if version == 4 else ("2001:db8::1", "2001:db8:1::1")
    for what, to, connected in (("hops", far, False), ("hops", far, True), ("prohibited", closed, True)):
        for keeps in (True, False):
            one = ping(version)
            level = socket.IPPROTO_IP if version == 4 else socket.IPPROTO_IPV6
            name = IP_RECVERR if version == 4 else IPV6_RECVERR
            say(version, what, keeps, answer(one.setsockopt, level, name, int(keeps)))
            if what == "hops":
                one.setsockopt(level, socket.IP_TTL if version == 4 else socket.IPV6_UNICAST_HOPS, 1)
            if connected:
                one.connect((to, 0))
                one.send(echo(version, 4, b"quoted"))
            else:
                one.sendto(echo(version, 4, b"quoted"), (to, 0))
            poll = select.poll()
            poll.register(one, select.POLLIN)
            # An error without a queue and a peer is told to none.
            told = keeps or (connected and what != "hops")
            say(version, "poll", [event for _, event in poll.poll(3000 if told else 300)])
            one.setblocking(False)
            if not told:
                say(version, "nothing", answer(one.recv, 100))
                continue
            if not keeps:
                say(version, "pending", answer(one.recv, 100), answer(one.recv, 100))
                continue
            message, ancillary, flags, name = one.recvmsg(2000, 500, socket.MSG_ERRQUEUE)
            ident = struct.pack("!H", one.getsockname()[1])
            say(version, "quoted", message[:2], message[4:6] == ident, message[6:], name[:2], flags)
            for its, kind, data in ancillary:
                say(version, "error", its, kind, data[:12].hex(), data[16:].hex() if version == 4 else data[24:40].hex())
            say(version, "after it", answer(one.recv, 100))
    one = ping(version)
    one.setsockopt(socket.IPPROTO_IP if version == 4 else socket.IPPROTO_IPV6,
                   IP_MTU_DISCOVER if version == 4 else 23, 2)
    say(version, "too long", answer(one.sendto, echo(version, 1, bytes(1600)), (PEER[version], 0)))


def flood(version):
    one = ping(version)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for seq in range(400):
        one.sendto(echo(version, seq, bytes(100)), (PEER[version], 0))
    time.sleep(0.5)
    one.setblocking(False)
    kept = 0
    while not isinstance(answer(one.recv, 200), str):
        kept += 1
    say(version, "bounded", 1 <= kept <= 40)
    one.setblocking(True)
    one.settimeout(3)
    one.sendto(echo(version, 7), (PEER[version], 0))
    say(version, "and goes on", received(version, answer(one.recvfrom, 2000)))


for which in (4, 6):
    for topic in (echoes, binds, connects, refusals, waits, ancillary, errors, flood):
        if len(sys.argv) < 6 or topic.__name__ in sys.argv[5:]:
            print(f"-- {topic.__name__}", flush=True)
            topic(which)
