# What UDP sockets say of addresses, ports and errors, a line each, the same on the kernel's sockets and on netchan's.
# Usage: datagrams.py OWN4 OWN6 TOPIC; loopback addresses are the same stack's.
import ctypes
import errno
import fcntl
import select
import socket
import struct
import sys

OWN4, OWN6 = sys.argv[1:3]
LIBC = ctypes.CDLL(None, use_errno=True)
V4, V6 = socket.AF_INET, socket.AF_INET6
PORT = 5400
NAMES = {OWN4: "own4", OWN6: "own6", "::ffff:" + OWN4: "mapped"}


def says(call):
    try:
        return call()
    except OSError as e:
        return errno.errorcode[e.errno]


def new(family=V4, at=None):
    s = socket.socket(family, socket.SOCK_DGRAM)
    if at is not None:
        s.bind(at)
    return s


def name(address):
    if isinstance(address, str):
        return address
    host, port = address[:2]
    return NAMES.get(host, host), port if port < PORT + 100 and port >= PORT or not port else "some"


def raw(family, host, port):
    if family == socket.AF_UNSPEC:
        return struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_pton(V4, host) + bytes(8)
    if family == V4:
        return struct.pack("=H", V4) + struct.pack("!H", port) + socket.inet_pton(V4, host) + bytes(8)
    return struct.pack("=H", family) + struct.pack("!HI", port, 0) + socket.inet_pton(V6, host) + bytes(4)


def c(call, s, *args):
    """A call with an address as bytes, and how many of them count."""
    result = getattr(LIBC, call)(s.fileno(), *args)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def error(s, wait=5):
    """The pending error, once there is one."""
    p = select.poll()
    p.register(s, 0)
    p.poll(wait * 1000)
    code = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.errorcode.get(code, code)


def heard(s, wait=5):
    if not select.select([s], [], [], wait)[0]:
        return None
    data, peer = s.recvfrom(100)
    return data, name(peer)


def urgent():
    """IPv4 has no urgent datagrams, and says so first; to IPv6 the flag means nothing."""
    hearer = new(V6, ("::", PORT))
    v4, v6 = new(V4), new(V6)
    oob = lambda s, to, n=1: says(lambda: s.sendto(b"x" * n, socket.MSG_OOB, to))
    print("v4", oob(v4, (OWN4, PORT)), oob(v4, (OWN4, 0)), says(lambda: v4.send(b"x", socket.MSG_OOB)))
    print("v6", oob(v6, (OWN6, PORT)), heard(hearer), oob(v6, (OWN6, 0)))
    print("mapped", oob(v6, ("::ffff:" + OWN4, PORT)), oob(v6, ("::ffff:" + OWN4, 0)))
    print("none", says(lambda: v6.send(b"x", socket.MSG_OOB)))
    only = new(V6)
    only.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    print("only", oob(only, ("::ffff:" + OWN4, PORT)), oob(only, ("::ffff:" + OWN4, 0)))
    v6.connect(("::ffff:" + OWN4, PORT))
    print("connected", says(lambda: v6.send(b"x", socket.MSG_OOB)), oob(v6, (OWN6, PORT)), oob(v6, (OWN6, 0)))
    for length in (1, 8):
        wrong = raw(V6, OWN6, PORT)
        print("short", c("sendto", v4, b"x", 1, socket.MSG_OOB, wrong, length), c("sendto", v6, b"x", 1, socket.MSG_OOB, wrong, length))


def unaddressed():
    """A send or a connect gives a socket a port, whatever becomes of it."""
    for family, own in ((V4, OWN4), (V6, OWN6)):
        short = raw(family, own, PORT)
        tries = {
            "send": lambda s: says(lambda: s.send(b"x")),
            "write": lambda s: c("write", s, b"x", 1),
            "urgent": lambda s: says(lambda: s.send(b"x", socket.MSG_OOB)),
            "sendmsg": lambda s: says(lambda: s.sendmsg([b"x"])),
            "short": lambda s: c("sendto", s, b"x", 1, 0, short, 8),
            "connect": lambda s: c("connect", s, short, 8),
            "nothing": lambda s: c("connect", s, short, 1),
            "recv": lambda s: says(lambda: s.recv(1, socket.MSG_DONTWAIT)),
        }
        for what, attempt in tries.items():
            for lost in (False, True):
                s = new(family)
                if lost:
                    s.connect((own, PORT))
                    c("connect", s, raw(socket.AF_UNSPEC, "0.0.0.0", 0), 16)
                print(what, lost, attempt(s), name(s.getsockname()), says(lambda: s.bind((own, PORT))))
    s = new(V4)
    print("no family", c("sendto", s, b"x", 1, 0, raw(socket.AF_UNSPEC, OWN4, PORT), 16), c("sendto", new(V6), b"x", 1, 0, raw(0, OWN4, PORT), 16))
    for host, length in (("0.0.0.0", 16), (OWN4, 16), ("0.0.0.0", 8)):
        s = new(V4)
        print("bind", c("bind", s, raw(socket.AF_UNSPEC, host, PORT + 1), length), name(s.getsockname()))
        s.close()
    print("bind", c("bind", new(V4), raw(V6, "::", PORT), 8), c("bind", new(V4), raw(V6, "::", PORT), 28), c("bind", new(V6), raw(V4, OWN4, PORT), 16))


def reconnected():
    """The address of the first connect stays until there is no peer any more."""
    first = [("127.0.0.1", OWN4, "0.0.0.0"), ("::1", OWN6, "::", "::ffff:127.0.0.1", "::ffff:" + OWN4, "::ffff:0.0.0.0")]
    for family, hosts in zip((V4, V6), first):
        for at in (None, "any", "mapped"):
            for one in hosts:
                for two in hosts:
                    s = new(family)
                    if at == "mapped" and family == V4:
                        continue
                    if at:
                        s.bind((("::ffff:0.0.0.0" if at == "mapped" else "::" if family == V6 else "0.0.0.0"), 0))
                    line = [at, one.replace(OWN4, "own4").replace(OWN6, "own6"), two.replace(OWN4, "own4").replace(OWN6, "own6")]
                    for to in (one, two):
                        line += [says(lambda: s.connect((to, PORT))), name(s.getsockname()), name(s.getpeername()) if not isinstance(says(s.getpeername), str) else None]
                    # An address of IPv6 hears of nothing that is IPv4's.
                    deaf = two.startswith("::ffff") and not one.startswith("::ffff") and at != "mapped"
                    sent = says(lambda: s.send(b"x"))
                    line += [sent, error(s, 0.1 if deaf else 5 if sent == 1 else 0)]
                    c("connect", s, raw(socket.AF_UNSPEC, "0.0.0.0", 0), 16)
                    # Linux shows an address that was given up as a mapped one where it was IPv4's.
                    line += [name(s.getsockname())] if family == V4 else []
                    print(*line)
                    s.close()


def family():
    """Bound to an IPv6 address a socket is of IPv6 alone."""
    for at in ("::", OWN6, "::1", "::ffff:" + OWN4, "::ffff:0.0.0.0"):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            s = socket.socket(V6, kind)
            s.bind((at, 0))
            print(NAMES.get(at, at), s.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), end=" ")
            print(says(lambda: s.connect(("::ffff:" + OWN4, PORT))) if kind == socket.SOCK_DGRAM else "")
        s = new(V6, (at, 0))
        print(says(lambda: s.sendto(b"x", ("::ffff:" + OWN4, PORT))), c("sendto", s, b"x", 1, 0, raw(V4, OWN4, PORT), 16), c("connect", s, raw(V4, OWN4, PORT), 16))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(V6, kind)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        print("bind", says(lambda: s.bind(("::ffff:" + OWN4, 0))), says(lambda: s.bind(("::ffff:0.0.0.0", 0))), says(lambda: s.bind((OWN6, 0))))


def port_zero():
    """A peer without a port is a whole host, and hears of port 0."""
    for family, own in ((V4, OWN4), (V6, OWN6), (V6, "::ffff:" + OWN4)):
        hearer = new(family, (own, PORT))
        other = new(family, (own, PORT + 1))
        print(hearer.connect((own, 0)), says(hearer.getpeername), says(lambda: hearer.send(b"x")), error(hearer, 5 if own[2] != "f" else 0.2))
        print(other.sendto(b"one", (own, PORT)), heard(hearer), says(lambda: other.sendto(b"x", (own, 0))))
        other.connect((own, PORT + 9))
        print(says(lambda: other.send(b"x")), error(other), says(lambda: hearer.sendto(b"y", (own, PORT + 9))), error(hearer))
        exact = new(family, (own, PORT + 2))
        c("connect", hearer, raw(socket.AF_UNSPEC, "0.0.0.0", 0), 16)
        print(exact.sendto(b"two", (own, PORT)), heard(hearer))
        for s in (hearer, other, exact):
            s.close()


def errors():
    """What this host refuses itself it says each time, to the address that was sent from."""
    pairs = [(V4, "127.0.0.1", OWN4), (V4, OWN4, "127.0.0.1"), (V4, OWN4, OWN4), (V6, "::1", OWN6), (V6, OWN6, "::1"), (V6, OWN6, OWN6)]
    for family, at, to in pairs:
        s = new(family, (at, 0))
        s.connect((to, PORT + 9))
        print([(says(lambda: s.send(b"x")), error(s)) for _ in range(30)])
    for level, option in ((socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25)):  # IP_RECVERR, IPV6_RECVERR
        for own in (OWN6, "::ffff:" + OWN4):
            s = new(V6)
            s.setsockopt(level, option, 1)
            print(level, s.getsockopt(level, option), s.sendto(b"x", (own, PORT + 9)), error(s, 0.3))


def shut():
    """A shutdown counts before there is a port."""
    taken = new(V4, (OWN4, PORT))
    for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        for bound in (False, True):
            s = new(V4)
            line = [says(lambda: s.shutdown(how))]
            if bound:
                line += [says(lambda: s.bind((OWN4, PORT)))]
            p = select.poll()
            p.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
            line += [p.poll(0)[0][1], says(lambda: s.recv(1, socket.MSG_DONTWAIT))]
            print(how, bound, *line, says(lambda: s.sendto(b"x", (OWN4, PORT))))
    taken.close()


def requests():
    at_mark = lambda s: says(lambda: struct.unpack("i", fcntl.ioctl(s, 0x8905, bytes(4)))[0])
    print(at_mark(new(V4, (OWN4, 0))), at_mark(new(V6, (OWN6, 0))))
    s = socket.socket()
    s.bind((OWN4, 0))
    print(at_mark(s))


globals()[sys.argv[3]]()
