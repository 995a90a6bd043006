# Time stamps of datagrams with the packet that was sent (SO_TIMESTAMPING without OPT_TSONLY), and those that a send asks for itself.
# The lines are the same on the kernel's sockets and on netchan's. Usage: sent_packets.py PEER-ADDRESS TOPIC; the services of peer.h are there.
import errno
import select
import socket
import struct
import sys
import time

TX, SOFT, ID, SCHED, ACK, CMSG, ONLY = 2, 16, 128, 256, 512, 1024, 2048
STAMPING, TS_OPT_ID, ERRQUEUE = 37, 81, 0x2000
ECHO = 9001
PEER = sys.argv[1]
LOCAL6, PEER6 = ("::1", "::1") if PEER.startswith("127.") else ("fd77::2", "fd77::1")
KINDS = ((socket.AF_INET, PEER), (socket.AF_INET6, "::ffff:" + PEER), (socket.AF_INET6, PEER6))


def says(call):
    try:
        return call()
    except OSError as e:
        return errno.errorcode[e.errno]


def open_to(family, peer, flags):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.connect((peer, ECHO))
    s.setsockopt(socket.SOL_SOCKET, STAMPING, flags)
    return s


def ends(s):
    return [s.getsockname()[0].removeprefix("::ffff:"), s.getpeername()[0].removeprefix("::ffff:")]


def packet(frame, s):
    """What of a frame does not depend on the host: the addresses of its header, identifications and checksums are left out."""
    ethertype, = struct.unpack_from("!H", frame, 12)
    ip = frame[14:]
    if ethertype == 0x800:
        first, tos, len_, fragment, ttl, protocol, source, destination = struct.unpack_from("!BBH2xHBB2x4s4s", ip)
        head = (first, tos, len_, hex(fragment), ttl, protocol)
        source, destination = socket.inet_ntop(socket.AF_INET, source), socket.inet_ntop(socket.AF_INET, destination)
        udp = ip[20:]
    else:
        first, len_, protocol, ttl, source, destination = struct.unpack_from("!IHBB16s16s", ip)
        head = (hex(first >> 20), len_, protocol, ttl)
        source, destination = socket.inet_ntop(socket.AF_INET6, source), socket.inet_ntop(socket.AF_INET6, destination)
        udp = ip[40:]
        if protocol == 44:
            head += struct.unpack_from("!BBH", udp)
            udp = udp[8:]
    from_port, to_port, len_ = struct.unpack_from("!HHH", udp)
    right = [source, destination] == ends(s), [from_port, to_port] == [s.getsockname()[1], s.getpeername()[1]]
    text = udp[8:]
    return hex(ethertype), head, right, len_, len(text), text[:12], text[-4:]


def told(s, count, room=100000, controls=600):
    """So many messages of the error queue, without times."""
    poll = select.poll()
    poll.register(s, 0)
    all = []
    while len(all) < count:
        assert poll.poll(20000), "nothing is told"
        frame, ancillary, flags, address = s.recvmsg(room, controls, ERRQUEUE)
        line = [packet(frame, s) if len(frame) > 60 or room > 60 and frame else bytes(frame[14:15]), len(frame), flags, address]
        for level, kind, value in ancillary:
            if kind == STAMPING and level == socket.SOL_SOCKET:
                at = struct.unpack("6q", value)
                line.append(("time", abs(at[0] + at[1] / 1e9 - time.time()) < 30, at[2:]))
            else:
                for ip in ends(s):
                    value = value.replace(socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip), b"own or peer's")
                line.append((level, kind, value))
        all.append(line)
    return sorted(all, key=str) + [says(lambda: s.recvmsg(0, 100, ERRQUEUE))]


def packets():
    for family, peer in KINDS:
        for flags in (TX | SOFT, TX | SCHED | SOFT | ID, SCHED, TX | SCHED | ACK | ID):
            s = open_to(family, peer, flags)
            count = bin(flags & (TX | SCHED)).count("1")
            for size in (1, 0, 1000, 1472 if peer != PEER6 else 1452):
                s.send(bytes(size - 1) + b"z" if size else b"")
                print(family, flags, size, told(s, count))
            s.send(b"0123456789" * 10)
            print("little room", told(s, count, 15))
            s.send(b"0123456789" * 10)
            print("none", told(s, count, 0, 0))
            # What is asked at the time of reading: the time, and of the time of sending: the packet.
            s.send(b"text")
            s.setsockopt(socket.SOL_SOCKET, STAMPING, flags ^ SOFT | ONLY)
            print("later", told(s, count))
            s.send(b"text")
            s.setsockopt(socket.SOL_SOCKET, STAMPING, flags)
            print("only", told(s, count))
            s.close()


def pieces():
    """Sends that become several packets or are one of several."""
    for family, peer in KINDS:
        for flags in (TX | SOFT | ID, TX | SCHED | SOFT | ID):
            s = open_to(family, peer, flags)
            count = bin(flags & (TX | SCHED)).count("1")
            for size in (1473, 5000, 65000):
                s.send(bytes(size))
                print(family, flags, size, told(s, count))
            # The first of several sends says what is asked.
            s.send(b"first", socket.MSG_MORE)
            print("none yet", says(lambda: s.recvmsg(0, 100, ERRQUEUE)))
            s.setsockopt(socket.SOL_SOCKET, STAMPING, SOFT | ID)
            s.send(b"second")
            s.setsockopt(socket.SOL_SOCKET, STAMPING, flags)
            print("more", told(s, count))
            s.setsockopt(socket.IPPROTO_UDP, 1, 1)  # UDP_CORK
            for piece in (b"a", b"b", b"c"):
                s.send(piece)
            print("corked", says(lambda: s.recvmsg(0, 100, ERRQUEUE)))
            s.setsockopt(socket.IPPROTO_UDP, 1, 0)
            print("uncorked", told(s, count))
            # What was not sent is not told of, and has no number.
            print("too long", says(lambda: s.send(bytes(70000))), says(lambda: s.recvmsg(0, 100, ERRQUEUE)))
            s.send(b"next")
            print("next", told(s, count))
            s.close()


def asks(*pairs):
    return [(socket.SOL_SOCKET, kind, struct.pack("I", value)) for kind, value in pairs]


def along():
    """What a send asks for itself, as ancillary data."""
    for family, peer in KINDS:
        s = open_to(family, peer, SOFT | ID | ONLY)
        for ask in (TX, SCHED, TX | SCHED, 0):
            s.sendmsg([b"text"], asks((STAMPING, ask)))
            print(family, ask, told(s, bin(ask).count("1")))
        s.setsockopt(socket.SOL_SOCKET, STAMPING, TX | SOFT | ID)
        for ask in (SCHED, 0):
            s.sendmsg([b"text"], asks((STAMPING, ask)))
            print("instead", ask, told(s, bin(ask).count("1")))
        s.sendmsg([b"text"], asks((TS_OPT_ID, 77)))
        print("number", told(s, 1))
        s.sendmsg([b"text"], asks((STAMPING, SCHED), (TS_OPT_ID, 0xfffffffe)))
        print("both", told(s, 1))
        s.send(b"text")
        print("after", told(s, 1))
        for wrong in (asks((STAMPING, SOFT)), asks((STAMPING, 8)), asks((STAMPING, 1 << 30)), [(1, STAMPING, b"12")], [(1, TS_OPT_ID, b"12345678")],
                      [(1, STAMPING, b"12345678")]):
            print("wrong", says(lambda: s.sendmsg([b"text"], wrong)), says(lambda: s.recvmsg(0, 100, ERRQUEUE)))
        s.setsockopt(socket.SOL_SOCKET, STAMPING, TX | SOFT)
        print("no numbers", says(lambda: s.sendmsg([b"text"], asks((TS_OPT_ID, 5)))), says(lambda: s.recvmsg(0, 100, ERRQUEUE)))
        s.close()
    # Of streams as well.
    s = socket.create_connection((PEER, ECHO))
    s.setsockopt(socket.SOL_SOCKET, STAMPING, SOFT | ID | ONLY)
    for ask in (TX, ACK, TX | SCHED | ACK, 0):
        print("stream", s.sendmsg([b"text"], asks((STAMPING, ask))), s.recv(4, socket.MSG_WAITALL))
        print(ask, [line[4:] for line in told(s, bin(ask).count("1"))[:-1]])
    for wrong in (asks((STAMPING, SOFT)), asks((TS_OPT_ID, 1)), asks((99, 1)), [(1, STAMPING, b"")]):
        print("wrong", says(lambda: s.sendmsg([b"text"], wrong)))
    print("others'", s.sendmsg([b"text"], [(socket.IPPROTO_IP, 2, struct.pack("i", 3))]), s.recv(4))


def controls():
    """SOF_TIMESTAMPING_OPT_CMSG: the ancillary data that were asked for, as of what comes."""
    for family, peer in KINDS:
        for flags in (TX | SOFT | CMSG, TX | SOFT | CMSG | ONLY, TX | SOFT):
            s = open_to(family, peer, flags)
            s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
            s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
            s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
            s.setsockopt(socket.IPPROTO_IP, 1, 9)  # IP_TOS
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, 49, 1)  # IPV6_RECVPKTINFO
                s.setsockopt(socket.IPPROTO_IPV6, 51, 1)  # IPV6_RECVHOPLIMIT
            s.send(b"text")
            print(family, flags, told(s, 1))
            s.close()


globals()[sys.argv[2]]()
