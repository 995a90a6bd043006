"""What bind, connect and accept make of a socket's options and addresses; what it prints is compared with the kernel's."""

import ctypes
import errno
import itertools
import select
import socket
import struct
import sys

# On the link, but no host; whose address a datagram to it has is the stack's own.
ELSEWHERE = "10.77.0.9"
LIBC = ctypes.CDLL(None, use_errno=True)


def says(call, *arguments):
    try:
        result = call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok" if result is None else result


def disconnect(s):
    return LIBC.connect(s.fileno(), (ctypes.c_char * 28)(), 28)


def named(address):
    return "own" if "10.77." in address else address


def reuse():
    """SO_REUSEADDR and SO_REUSEPORT count as they are when another is bound, not as they were when the first one was."""
    port = 20000
    times = {socket.SOCK_DGRAM: ["bound"], socket.SOCK_STREAM: ["bound", "listens later", "listens", "shut"]}
    for kind, time in ((kind, time) for kind in times for time in times[kind]):
        for values in itertools.product((0, 1), repeat=6):
            first, then, other = values[:2], values[2:4], values[4:]
            port += 1
            with socket.socket(socket.AF_INET, kind) as a, socket.socket(socket.AF_INET, kind) as b:
                for s, (address, shared) in ((a, first), (b, other)):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, address)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
                a.bind(("127.0.0.1", port))
                if time in ("listens", "shut"):
                    a.listen(1)
                if time == "shut":
                    a.shutdown(socket.SHUT_RDWR)
                a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, then[0])
                a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, then[1])
                said = says(a.listen, 1) if time == "listens later" else ""
                print(kind.name, time, first, then, other, said, says(b.bind, ("127.0.0.1", port)))


def listens_anew():
    """Two share a port until one of them says no more that it does."""
    for port, value in ((20500, 0), (20501, 1)):
        with socket.socket() as a, socket.socket() as b:
            for s in (a, b):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, value)
            print("listen beside one that reuses", value, says(b.listen, 1), says(a.listen, 1))


def pair(family, host, port):
    with socket.socket(family) as listener:
        listener.bind((host, port))
        listener.listen(2)
        client = socket.create_connection(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        return client, listener.accept()[0]


def mapped_wildcard():
    """An IPv6 socket's IPv4 wildcard does not stand against an IPv6 address, IPv4's own does, where that is not of IPv6 alone."""
    for port, family, host in ((20600, socket.AF_INET6, "::ffff:0.0.0.0"), (20601, socket.AF_INET, "0.0.0.0"), (20602, socket.AF_INET6, "::")):
        for closed in (False, True):
            client, server = pair(socket.AF_INET6, "::", port)
            if closed:
                server.close()  # a TIME-WAIT
                client.close()
            with socket.socket(family) as other:
                print("bind", host, "closed" if closed else "open", says(other.bind, (host, port)))
            # It lingers at the port: the next one has another.
            server.close()
            client.close()
            port += 10


def name_after_a_failure():
    """Bound to IPv4's mapped wildcard after a connect has failed, it shows that, also once the failure was told."""
    for bound in ("::ffff:0.0.0.0", "::", "::ffff:127.0.0.1"):
        with socket.socket(socket.AF_INET6) as s:
            s.setblocking(False)
            print("refused", says(s.connect, ("::ffff:127.0.0.1", 20700)))
            failed = select.poll()
            failed.register(s, 0)
            print(len(failed.poll(10_000)), s.getsockname()[0])
            print("bind", bound, says(s.bind, (bound, 20701)), s.getsockname()[:2])
            print("told", says(s.connect, ("::ffff:127.0.0.1", 20700)), s.getsockname()[:2])


def mapped_sources():
    """An IPv6 datagram socket that has an IPv6 address has an IPv4 one beside it from its first connect to IPv4 on."""
    to = {"any": "::ffff:0.0.0.0", "loopback": "::ffff:127.0.0.1", "elsewhere": "::ffff:" + ELSEWHERE, "v6": "::1", "v6 any": "::"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 20800))
        receiver.settimeout(10)
        for steps in itertools.chain(itertools.product([*to, "none"], repeat=3), itertools.product(["v6"], ["loopback", "elsewhere"], to, to)):
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
                line = []
                for step in steps:
                    if step == "none":
                        disconnect(s)
                        line.append("none")
                        continue
                    said = says(s.connect, (to[step], 20800))
                    source = ""
                    if said == "ok" and step in ("any", "loopback") and named(s.getsockname()[0]) != "own":
                        source = says(s.send, b"x")
                        if source == 1:
                            source = named(receiver.recvfrom(10)[1][0])
                    line.append(f"{step}: {said} {named(s.getsockname()[0])} {source}")
                print(" | ".join(line), "| sendto", says(s.sendto, b"x", (to["elsewhere"], 20801)))


def step(s, name, server, port):
    if name == "disconnect":
        return disconnect(s)
    if name == "listen":
        return says(s.listen, 1)
    if name == "connect":
        return says(s.connect, server.getsockname()[:2])
    host, at = {"any": (server.getsockname()[0], 0), "named": (server.getsockname()[0], port), "taken": server.getsockname()[:2]}[name]
    return says(s.bind, (host, at))


def ports_shown():
    """The port that getsockname shows is the one that it had last, by whichever call it got it."""
    names = ["disconnect", "listen", "connect", "any", "named", "taken"]
    port = 21000
    for host, start in itertools.product(("127.0.0.1", "::1", "::ffff:127.0.0.1"), ("new", "connected", "accepted")):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as server:
            server.bind((host, 20950))
            server.listen(64)
            for names_now in itertools.product(names, repeat=4):
                if start != "new" and names_now[0] != "disconnect":
                    continue
                port += 1
                s, other = socket.socket(family), None
                if start != "new":
                    s.connect((host, 20950))
                    other, _ = server.accept()
                if start == "accepted":
                    s, other = other, s
                known, line = {0: "none", 20950: "server's", port: "named"}, []
                for name in names_now:
                    said = step(s, name, server, port)
                    shown = s.getsockname()
                    line.append(f"{name}: {said} {shown[0]} {known.setdefault(shown[1], f'some {len(known)}')}")
                print(host, start, " | ".join(line))
                for left in (s, other):
                    if left:
                        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        left.close()
                server.setblocking(False)
                while says(server.accept) != "EAGAIN":
                    pass
                server.setblocking(True)


def inherited():
    """What is accepted has the options that its listener had when it connected."""
    options = [(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
               (socket.IPPROTO_IP, socket.IP_TOS, 16), (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 20)]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 20900))
        listener.listen(10)
        clients = [socket.create_connection(("127.0.0.1", 20900))]
        # Not before it waits to be accepted.
        listener.settimeout(10)
        for level, name, value in options:
            await_waiting(listener, len(clients))
            listener.setsockopt(level, name, value)
            clients.append(socket.create_connection(("127.0.0.1", 20900)))
        await_waiting(listener, len(clients))
        for _ in clients:
            accepted, _ = listener.accept()
            print("accepted", [accepted.getsockopt(level, name) for level, name, _ in options])
            accepted.close()
        clients.append(socket.create_connection(("127.0.0.1", 20900)))
        print("later", [listener.accept()[0].getsockopt(level, name) for level, name, _ in options[:1]])


# Level, number, values of what netchan keeps. Not here: SO_INCOMING_CPU and TCP_QUICKACK, which are another for each connection.
INHERITED = {
    "reuseaddr": (1, 2, (1,)), "broadcast": (1, 6, (1,)), "sndbuf": (1, 7, (20000,)), "rcvbuf": (1, 8, (20000,)), "keepalive": (1, 9, (1,)),
    "oobinline": (1, 10, (1,)), "no_check": (1, 11, (1,)), "linger": (1, 13, ((1, 5), (1, 0))), "reuseport": (1, 15, (1,)),
    "rcvlowat": (1, 18, (20,)), "rcvtimeo": (1, 20, ((5, 8000, "us"),)), "sndtimeo": (1, 21, ((6, 12000, "us"),)), "timestamp": (1, 29, (1,)),
    "timestampns": (1, 35, (1,)), "mark": (1, 36, (7,)), "timestamping": (1, 37, (0x10,)), "rxq_ovfl": (1, 40, (1,)), "busy_poll": (1, 46, (50,)),
    "max_pacing_rate": (1, 47, (100000,)), "zerocopy": (1, 60, (1,)), "tos": (0, 1, (16, 3)), "ttl": (0, 2, (9,)), "pktinfo": (0, 8, (1,)),
    "mtu_discover": (0, 10, (0, 2, 3)), "recverr": (0, 11, (1,)), "recvttl": (0, 12, (1,)), "recvtos": (0, 13, (1,)), "multicast_loop": (0, 34, (0,)),
    "recvpktinfo6": (41, 49, (1,)), "recvhoplimit": (41, 51, (1,)), "recverr6": (41, 25, (1,)), "mtu_discover6": (41, 23, (0, 2)),
    "tclass": (41, 67, (16, 3)), "recvtclass": (41, 66, (1,)), "v6only": (41, 26, (1,)), "nodelay": (6, 1, (1,)), "maxseg": (6, 2, (600,)),
    "cork": (6, 3, (1,)), "keepidle": (6, 4, (9,)), "keepintvl": (6, 5, (9,)), "keepcnt": (6, 6, (9,)), "syncnt": (6, 7, (3,)),
    "linger2": (6, 8, (9, -1)), "defer_accept": (6, 9, (0,)), "window_clamp": (6, 10, (20000,)), "congestion": (6, 13, (b"reno",)),
    "user_timeout": (6, 18, (9000,)), "fastopen": (6, 23, (5,)), "notsent_lowat": (6, 25, (9000,)), "inq": (6, 36, (1,)),
}


def as_bytes(value):
    if isinstance(value, tuple):
        return struct.pack("ii" if len(value) == 2 else "qq", *value[:2])
    return value if isinstance(value, bytes) else struct.pack("i", value)


def every_inherited():
    """Which options of a listener an accepted socket has, and that it has them for itself."""
    for host, (name, (level, number, values)) in itertools.product(("127.0.0.1", "::1"), INHERITED.items()):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if level == 41 and family == socket.AF_INET:
            continue
        for value in values:
            packed = as_bytes(value)
            with socket.socket(family) as listener:
                listener.bind((host, 0))
                said = says(listener.setsockopt, level, number, packed)
                listener.listen(1)
                with socket.create_connection(listener.getsockname()[:2]), listener.accept()[0] as accepted:
                    shown = [says(s.getsockopt, level, number, 16) for s in (listener, accepted)]
                    shown = [s if isinstance(s, str) else s.hex() for s in shown]
                    again = said if said != "ok" else says(listener.setsockopt, level, number, bytes(len(packed)))
                    kept = says(accepted.getsockopt, level, number, 16)
                    print(host, name, value, said, *shown, again, kept if isinstance(kept, str) else kept.hex())


def await_waiting(listener, count):
    """TCP_INFO's tcpi_unacked of a listener are the connections that wait."""
    for _ in range(1_000_000):
        if struct.unpack_from("I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28), 24)[0] >= count:
            return
    sys.exit("they do not come")


for topic in sys.argv[1:]:
    globals()[topic]()
