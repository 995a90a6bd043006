# Facts about socket options and their effects, a line each, the same on the kernel's sockets and on netchan's.
# Usage: values.py PEER-ADDRESS TOPIC; the services of peer.h are there.
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

signal.signal(signal.SIGPIPE, signal.SIG_IGN)

ECHO, SILENT = 9001, 9005
PEER = sys.argv[1]


def connected(port, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    s.connect((PEER, port))
    return s


def says(call):
    try:
        return call()
    except OSError as e:
        return errno.errorcode[e.errno]


def timeval(seconds, us=0):
    return struct.pack("qq", seconds, us)


def timeouts():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = connected(SILENT, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(-1))
        begin = time.monotonic()
        print("negative timeout", says(lambda: s.recv(10)), time.monotonic() - begin < 5)
        print("reads back", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(0, 20000))
        print("short timeout", says(lambda: s.recv(10)))
        s.close()
    s = connected(SILENT)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(-5))
    total, result = 0, 0
    while isinstance(result, int):
        result = says(lambda: s.send(bytes(1 << 20)))
    print("negative timeout to send", result)
    s.close()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(-1))
    s.bind(("0.0.0.0", 0))
    s.listen()
    print("accept", says(s.accept))


def buffers():
    for name, force in (("SO_SNDBUF", 32), ("SO_RCVBUF", 33)):
        option = getattr(socket, name)
        for made in ("fresh", "connected", "datagram"):
            s = socket.socket() if made == "fresh" else connected(
                ECHO, socket.SOCK_DGRAM if made == "datagram" else socket.SOCK_STREAM)
            for value in (-(1 << 31), -1, 0, 1, 1152, 2304, 5000, 1 << 20, 1 << 24, (1 << 30) - 1, 1 << 30, (1 << 31) - 1):
                for number in (option, force):
                    s.setsockopt(socket.SOL_SOCKET, number, value)
                    print(made, name, number, value, s.getsockopt(socket.SOL_SOCKET, option))
            s.close()


def linger():
    """No FIN reaches the peer."""
    for blocking in (True, False):
        s = connected(ECHO)
        s.send(b"x")
        s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
        s.setblocking(blocking)
        begin = time.monotonic()
        s.close()
        print("lingers", blocking, 0.8 < time.monotonic() - begin < 10)


def lingers_no_longer():
    """The peer acknowledges."""
    s = connected(ECHO)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
    begin = time.monotonic()
    s.close()
    print("does not linger", time.monotonic() - begin < 15)


def no_df():
    """The peer sees no packet with DF once it is off, and none without before."""
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_IP, 10, 0)
    s.connect((PEER, ECHO))
    for size in (1, 3000, 100000):
        s.sendall(bytes(size))
        got = 0
        while got < size:
            got += len(s.recv(65536))
    print("echoed with packets that may be cut", s.getsockopt(socket.IPPROTO_IP, 10))
    s.close()


def df():
    for mode in (None, 1, 2):
        s = socket.socket()
        if mode:
            s.setsockopt(socket.IPPROTO_IP, 10, mode)
        s.connect((PEER, ECHO))
        s.sendall(bytes(5000))
        s.recv(100)
        s.close()
    print("sent with DF")


def source(size):
    s = connected(9002)
    s.sendall(struct.pack("q", size))
    while struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"    "))[0] < size:
        time.sleep(0.001)
    return s


def inquiry():
    s = source(1000)
    s.setsockopt(socket.IPPROTO_TCP, 36, 1)
    print("option", s.getsockopt(socket.IPPROTO_TCP, 36), says(lambda: s.setsockopt(socket.IPPROTO_TCP, 36, 2)))
    select.select([s], [], [])
    poll = select.poll()
    poll.register(s, 0x2000)
    poll.poll()  # the end has come, too
    for size in (100, 500, 400, 10):
        data, ancillary, flags, _ = s.recvmsg(size, 200)
        print(len(data), ancillary, flags)
    print(s.recvmsg(10, 4)[1:3])
    for other in (connected(ECHO, socket.SOCK_DGRAM), socket.socket()):
        print(says(lambda: other.setsockopt(socket.IPPROTO_TCP, 36, 1)))


def splicing():
    data = bytes(range(251)) * 2000
    r, w = os.pipe()
    s = connected(9003)  # counts and sums

    def fill():
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(w, rest):]
        os.close(w)

    thread = threading.Thread(target=fill)
    thread.start()
    total = 0
    while n := os.splice(r, s.fileno(), 1 << 20):
        total += n
    thread.join()
    s.shutdown(socket.SHUT_WR)
    print("to the socket", total, s.recv(16, socket.MSG_WAITALL).hex())
    s = connected(9002)
    s.sendall(struct.pack("q", len(data)))
    r, w = os.pipe()
    got = []

    def drain():
        while piece := os.read(r, 5000):
            got.append(piece)

    thread = threading.Thread(target=drain)
    thread.start()
    while os.splice(s.fileno(), w, 70000):
        pass
    os.close(w)
    thread.join()
    print("from the socket", b"".join(got) == data)
    s = connected(ECHO)
    r, w = os.pipe()
    s.setblocking(False)
    print("non-blocking", says(lambda: os.splice(s.fileno(), w, 10)), says(lambda: os.splice(r, s.fileno(), 10, flags=2)))
    s.setblocking(True)
    os.set_blocking(w, False)
    while not isinstance(says(lambda: os.write(w, bytes(4096))), str):
        pass
    s.sendall(b"more than nothing")
    select.select([s], [], [])
    print("full pipe", says(lambda: os.splice(s.fileno(), w, 10)))
    print("nothing lost", s.recv(100))
    print("offsets", says(lambda: os.splice(s.fileno(), w, 10, offset_src=3)), says(lambda: os.splice(s.fileno(), w, 10, offset_dst=3)), says(lambda: os.splice(r, s.fileno(), 10, offset_dst=3)))
    null = os.open("/dev/zero", os.O_RDWR)
    print("no pipe", says(lambda: os.splice(s.fileno(), null, 10)), says(lambda: os.splice(null, s.fileno(), 10)))
    s.shutdown(socket.SHUT_WR)
    print("after the end", says(lambda: os.splice(r, s.fileno(), 10)))
    u = socket.socket()
    r, w = os.pipe()
    os.write(w, b"x")
    print("not connected", says(lambda: os.splice(u.fileno(), w, 10)), says(lambda: os.splice(r, u.fileno(), 10)))


def errors(s, count):
    """So many messages of the error queue, without times."""
    told = []
    poll = select.poll()
    poll.register(s, 0)
    while len(told) < count:
        assert poll.poll(20000), "nothing is told"
        data, ancillary, flags, address = s.recvmsg(0, 500, 0x2000)
        line = [len(data), flags & ~socket.MSG_TRUNC, address]
        for level, kind, value in ancillary:
            if kind == 37:
                times = struct.unpack("6q", value)
                line.append(("time", abs(times[0] + times[1] / 1e9 - time.time()) < 30, times[2:]))
            else:
                line.append((level, kind, value.hex()))
        told.append(line)
    return sorted(told, key=str)


def zero_copy():
    s = connected(ECHO)
    print("ignored", s.send(b"abc", 0x4000000), says(lambda: s.recvmsg(0, 100, 0x2000)))
    s.setsockopt(socket.SOL_SOCKET, 60, 1)
    print("option", s.getsockopt(socket.SOL_SOCKET, 60), says(lambda: s.setsockopt(socket.SOL_SOCKET, 60, 2)))
    for size in (1, 10000):
        print(s.send(bytes(size), 0x4000000), errors(s, 1))
    print(says(lambda: s.recvmsg(0, 100, 0x2000)))
    s.send(b"x", 0x4000000)
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    while not dict(poll.poll())[s.fileno()] & select.POLLERR:
        time.sleep(0.001)
    print("a read waits for text beside it", len(s.recv(100000)) > 0)
    print(errors(s, 1), poll.poll(0)[0][1])
    # A listener's option is its connections'.
    u = socket.socket()
    print("before connecting", says(lambda: u.send(b"x", 0x4000000)))
    u.setsockopt(socket.SOL_SOCKET, 60, 1)
    u.connect((PEER, ECHO))
    print(u.send(b"abc", 0x4000000), errors(u, 1))
    # What is told of sends that follow each other is one range, up to what was read of it.
    for count in (5, 2):
        left = 3 if count == 5 else 0
        for _ in range(count):
            left += u.send(bytes(4000), 0x4000000)
        while left:
            left -= len(u.recv(left))
        print("a range", errors(u, 1), says(lambda: u.recvmsg(0, 100, 0x2000)))


def unspecified():
    """connect(2) to AF_UNSPEC of streams in each state."""
    libc = ctypes.CDLL(None, use_errno=True)

    def leave(s):
        failed = libc.connect(s.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16)
        return errno.errorcode[ctypes.get_errno()] if failed else "left"

    def events(s):
        poll = select.poll()
        poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        return [hex(event) for _, event in poll.poll(0)]

    s = connected(ECHO)
    port = s.getsockname()[1]
    print(leave(s), says(s.getpeername), s.getsockname()[0], s.getsockname()[1] == port)
    print(says(lambda: s.send(b"x")), says(lambda: s.recv(1)), events(s), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    print("again", says(lambda: s.connect((PEER, ECHO))), s.send(b"abc"), s.recv(3))
    s.send(b"unread")
    select.select([s], [], [])
    print("with text to read", leave(s))
    s.setblocking(False)
    print(says(lambda: s.recv(9)), says(lambda: s.recv(9)), events(s), says(lambda: s.shutdown(socket.SHUT_RDWR)), leave(s))
    print("listens", says(s.listen), leave(s), s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    s = connected(ECHO)
    s.shutdown(socket.SHUT_WR)
    print("half closed", s.recv(1), leave(s), says(lambda: s.recv(1)), says(lambda: s.connect((PEER, ECHO))), s.send(b"y"), s.recv(1))
    s = socket.socket()
    print("fresh", leave(s), says(s.getpeername))
    s.bind(("0.0.0.0", 0))
    print("bound", leave(s), s.getsockname()[1] != 0)
    s = connected(SILENT)
    s.setblocking(False)
    while isinstance(says(lambda: s.send(bytes(1 << 16))), int):
        pass
    print("with text that waits", leave(s), says(lambda: s.send(b"x")), says(lambda: s.connect((PEER, ECHO))))
    select.select([], [s], [])
    print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def stamps():
    TX, SOFT, ID, SCHED, ACK, ONLY, ID_TCP = 2, 16, 128, 256, 512, 2048, 65536
    for flags in (TX | SOFT, TX | SCHED | ACK | SOFT | ID, TX | ACK | ID | SOFT | ONLY, SCHED | ID, ACK | ID | ID_TCP | SOFT):
        s = connected(ECHO)
        s.send(b"before")
        s.recv(6, socket.MSG_WAITALL)
        s.setsockopt(socket.SOL_SOCKET, 37, flags)
        kinds = bin(flags & (TX | SCHED | ACK)).count("1")
        for size in (1, 3000):
            s.sendall(bytes(size))
            s.recv(size, socket.MSG_WAITALL)
            print(flags, errors(s, kinds))
        print(says(lambda: s.recvmsg(0, 100, 0x2000)))
        s.close()
    s = socket.socket()
    s.bind(("0.0.0.0", 0))
    for flags in (ID, ID_TCP, 4096, 1 << 25):
        print("refused", flags, says(lambda: s.setsockopt(socket.SOL_SOCKET, 37, flags)))
    # The kernel begins to look at the clock some time after it is first asked.
    warm = connected(ECHO, socket.SOCK_DGRAM)
    warm.setsockopt(socket.SOL_SOCKET, 37, 8 | SOFT)
    warm.send(b"x")
    while not warm.recvmsg(10, 500)[1]:
        warm.send(b"x")
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = connected(ECHO, kind)
        for option, value in ((37, 8 | SOFT), (29, 1), (35, 1), (37, 8)):
            s.setsockopt(socket.SOL_SOCKET, option, value)
            s.send(b"x")
            data, ancillary, flags, _ = s.recvmsg(10, 500)
            what = [(a, b, len(c), abs(struct.unpack_from("q", c)[0] - time.time()) < 30) for a, b, c in ancillary]
            print("received", data, what, flags)


def arrival_ioctls():
    """SIOCGSTAMP and SIOCGSTAMPNS: when the last datagram came that was read."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            s = socket.socket(family, kind)
            s.connect(((PEER if family == socket.AF_INET else "::ffff:" + PEER), ECHO))
            for round in range(3):
                for request in (0x8906, 0x8907):
                    print(kind, round, hex(request), says(lambda: stamp(s, request)))
                s.send(b"x")
                s.recv(1, socket.MSG_PEEK)
                print("peeked", says(lambda: stamp(s, 0x8906)))
                s.recv(1)
            s.close()


def stamp(s, request):
    first, second = struct.unpack("qq", fcntl.ioctl(s, request, bytes(16)))
    return abs(first - time.time()) < 30, 0 <= second < (1000000 if request == 0x8906 else 1000000000)


def flags():
    """SO_NO_CHECK is taken and read back, SO_PASSCRED refused where the kernel does so (since 6.16)."""
    refuses = says(lambda: socket.socket().getsockopt(socket.SOL_SOCKET, 16)) == "ENOTSUP"
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for early in (True, False):
            for option in (11, 16, 34) if refuses else (11,):
                s = socket.socket(socket.AF_INET, kind)
                if not early:
                    s.connect((PEER, ECHO))
                for value in (None, 1, 7, 0, -1):
                    if value is not None:
                        print(kind, early, option, value, says(lambda: s.setsockopt(socket.SOL_SOCKET, option, value)))
                    print(says(lambda: s.getsockopt(socket.SOL_SOCKET, option)))
                if early:
                    s.connect((PEER, ECHO))
                print("kept", says(lambda: s.getsockopt(socket.SOL_SOCKET, option)))
                s.send(b"abc")
                print(s.recvmsg(10, 500)[:3])
                s.close()


def broadcast():
    """UDP and TCP with the broadcast address of the peer's network."""
    probe = connected(ECHO, socket.SOCK_DGRAM)
    own = probe.getsockname()[0]
    all = "127.255.255.255" if own.startswith("127.") else "10.77.0.255"
    name = lambda a: a and ({own: "own", all: "all", "::ffff:" + all: "all", "::ffff:" + own: "own"}.get(a[0], a[0]))
    for mapped in (False, True):
        family, prefix = (socket.AF_INET6, "::ffff:") if mapped else (socket.AF_INET, "")
        hearers = {"wildcard": socket.socket(family, socket.SOCK_DGRAM)}
        hearers["wildcard"].bind(("::" if mapped else "0.0.0.0", 5300 + mapped))
        for n, (what, at) in enumerate((("all", all), ("limited", "255.255.255.255"), ("own", own))):
            s = hearers[what] = socket.socket(family, socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            print("bind", what, says(lambda: s.bind((prefix + at, 5310 + 10 * mapped))), name(s.getsockname()))
        s = socket.socket(family, socket.SOCK_DGRAM)
        to = lambda host, port: says(lambda: s.sendto(b"to " + name((host,)).encode(), (prefix + host, port)))
        print("without", to(all, 5300), says(lambda: s.connect((prefix + all, 5300))))
        print("no port", to(all, 0))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for port in (5300 + mapped, 5310 + 10 * mapped):
            for host in (all, own):
                print("with", to(host, port))
        for what, hearer in hearers.items():
            heard, wait = [], 5 if what != "limited" else 0.1
            while select.select([hearer], [], [], wait)[0]:
                data, peer = hearer.recvfrom(100)
                heard.append((data, name(peer)))
                wait = 0.1
            print(what, sorted(heard))
        # Linux has no way from a mapped broadcast address; netchan's source is its own then.
        mapped or print("from there", says(lambda: hearers["all"].sendto(b"x", (prefix + own, 5300 + mapped))),
              name(hearers["wildcard"].recvfrom(10)[1]) if select.select([hearers["wildcard"]], [], [], 5)[0] else None)
        print("connect", says(lambda: s.connect((prefix + all, 5300 + mapped))), name(s.getpeername()), name(s.getsockname()))
        print("send", says(lambda: s.send(b"connected")))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 0)
        print("send", says(lambda: s.send(b"still")))
        heard = []
        while select.select([hearers["wildcard"]], [], [], 0.2 if heard else 5)[0]:
            heard.append(hearers["wildcard"].recv(10))
        print(heard)
        for on in (0, 1):
            t = socket.socket(family)
            t.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, on)
            print("TCP connect", says(lambda: t.connect((prefix + all, ECHO))))
        t = socket.socket(family)
        print("TCP bind", says(lambda: t.bind((prefix + all, 0))), name(t.getsockname()), says(t.listen))
        t = socket.socket(family)
        print("TCP group", says(lambda: t.connect((prefix + "224.0.0.251", ECHO))))
        for s in hearers.values():
            s.close()


def queued_error(s):
    """The first error in the queue, without what depends on the host: its MTU is said to be that."""
    try:
        data, told, flags, about = s.recvmsg(100, 512, socket.MSG_ERRQUEUE)
    except OSError as e:
        return errno.errorcode[e.errno]
    level, kind, said = told[0]
    code, origin, what, extra, info, more = struct.unpack("IBBBxII", said[:16])
    mtu = s.getsockopt(level, 14 if level == socket.IPPROTO_IP else 24)
    offender = struct.unpack("H", said[16:18])[0] if len(said) > 16 else None
    return (level, kind, errno.errorcode[code], origin, what, extra, info == mtu, info if info > 10000 else 0, more,
            offender, data, flags & ~socket.MSG_ERRQUEUE, about[1], len(told))


def too_long():
    v6 = "::1" if PEER.startswith("127.") else "fd77::1"
    for family, address, level, discover, receive_errors in (
            (socket.AF_INET, PEER, socket.IPPROTO_IP, 10, 11),
            (socket.AF_INET6, v6, socket.IPPROTO_IPV6, 23, 25),
            (socket.AF_INET6, "::ffff:" + PEER, socket.IPPROTO_IP, 10, 11)):
        # The longest payload of a packet, and of this link's.
        limits = (65507, 1472) if level == socket.IPPROTO_IP else (65527, 1452)
        for told in (0, 1):
            for mode in (0, 1, 2, 3):
                s = socket.socket(family, socket.SOCK_DGRAM)
                s.connect((address, SILENT))
                s.setsockopt(level, receive_errors, told)
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, 25, told)
                s.setsockopt(level, discover, mode)
                lens = [limits[0] + 1, 65535, 65536, 100000]
                if mode >= 2:
                    lens = [limits[1] + 1, limits[0]] + lens
                for len in lens:
                    result = says(lambda: s.send(bytes(len)))
                    ready = select.select([s], [], [], 0)[0] == [s]
                    p = select.poll()
                    p.register(s, select.POLLERR)
                    print(family.name, told, mode, len, result, ready, p.poll(0) != [], queued_error(s), queued_error(s),
                          s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                # Put together from two: what is too long with the second forgets both.
                first = says(lambda: s.send(bytes(60000) if mode < 2 else bytes(1000), socket.MSG_MORE))
                print("corked", first, says(lambda: s.send(bytes(60000))), queued_error(s))
                s.close()
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(level, receive_errors, 1)
        for len in (limits[0] + 1, 70000):
            print("not connected", says(lambda: s.sendto(bytes(len), (address, SILENT))))
            try:
                data, told, flags, about = s.recvmsg(100, 512, socket.MSG_ERRQUEUE)
                print(about[1], flags & ~socket.MSG_ERRQUEUE, told[0][2][:8])
            except OSError as e:
                print(errno.errorcode[e.errno])
        s.close()


def busy_polls():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for early in (True, False):
            s = socket.socket(socket.AF_INET, kind)
            early or s.connect((PEER, ECHO))
            get = lambda name: says(lambda: s.getsockopt(socket.SOL_SOCKET, name))
            set_ = lambda name, value: says(lambda: s.setsockopt(socket.SOL_SOCKET, name, value))
            # SO_BUSY_POLL, SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET, SO_INCOMING_CPU
            for name in (46, 69, 70, 49):
                print(kind, early, name, get(name) if name != 49 else "a processor")
                for value in (-2, -1, 0, 1, 2, 50, 65535, 65536, 1 << 30, b"\0", b"\1\0\0\0\0"):
                    print(value, set_(name, value), get(name))
            early and s.connect((PEER, ECHO))
            print("kept", get(46), get(69))
            # Waits as long as is asked, whether it looks or sleeps.
            set_(46, 20000)
            s.send(b"text")
            print(s.recv(10))
            s.settimeout(None)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(0, 5000))
            print(says(lambda: s.recv(10)))
            s.close()
    listener = socket.create_server(("", 0) if PEER.startswith("127.") else ("10.77.0.2", 0))
    listener.setsockopt(socket.SOL_SOCKET, 46, 77)
    client = socket.create_connection(listener.getsockname() if listener.getsockname()[0] != "0.0.0.0" else (PEER, listener.getsockname()[1]))
    accepted, _ = listener.accept()
    print("inherited", accepted.getsockopt(socket.SOL_SOCKET, 46))


def datagrams_sent():
    """Time stamps and completions of datagrams."""
    TX, SOFT, ID, SCHED, ACK, ONLY = 2, 16, 128, 256, 512, 2048
    ZERO_COPY = 0x4000000
    nothing = lambda s: says(lambda: s.recvmsg(0, 100, 0x2000))
    for family, peer in ((socket.AF_INET, PEER), (socket.AF_INET6, "::ffff:" + PEER)):
        for flags in (TX | SOFT | ONLY, TX | SCHED | ACK | SOFT | ID | ONLY, SCHED | ID | ONLY, TX | ONLY, ACK | SOFT | ID | ONLY):
            s = socket.socket(family, socket.SOCK_DGRAM)
            s.connect((peer, ECHO))
            s.send(b"before")
            s.setsockopt(socket.SOL_SOCKET, 37, flags)
            kinds = bin(flags & (TX | SCHED)).count("1")
            for size in (1, 0, 1400):
                s.send(bytes(size))
                print(flags, size, errors(s, kinds), nothing(s))
            # Asked for again they count from 0.
            s.setsockopt(socket.SOL_SOCKET, 37, flags & ~ID)
            s.send(b"x")
            print("without", errors(s, kinds), nothing(s))
            s.setsockopt(socket.SOL_SOCKET, 37, flags)
            s.sendto(b"y", (peer, ECHO))
            s.sendmsg([b"z"])
            print("again", errors(s, 2 * kinds), nothing(s))
            s.setsockopt(socket.SOL_SOCKET, 37, 0)
            s.send(b"x")
            print("no more", nothing(s))
            s.close()
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.connect((peer, ECHO))
        print("ignored", s.send(b"abc", ZERO_COPY), nothing(s))
        print("option", says(lambda: s.setsockopt(socket.SOL_SOCKET, 60, 1)), s.getsockopt(socket.SOL_SOCKET, 60),
              says(lambda: s.setsockopt(socket.SOL_SOCKET, 60, 2)))
        for size in (1, 0, 1400, 20000):
            print(size, s.send(bytes(size), ZERO_COPY), errors(s, 1))
        print("too long", says(lambda: s.send(bytes(70000), ZERO_COPY)), nothing(s))
        s.send(b"x", ZERO_COPY)
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        while not dict(poll.poll())[s.fileno()] & select.POLLERR:
            time.sleep(0.001)
        # It is no error of the socket.
        print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.recv(100) != b"")
        print(errors(s, 1), poll.poll(0)[0][1] & select.POLLERR)
        for n in range(5):
            s.send(b"x")
        print("taken by recv", len(says(lambda: s.recv(10))) >= 0)
        # Both at a time, and an error of another kind among them.
        s.setsockopt(socket.SOL_SOCKET, 37, TX | SOFT | ID | ONLY)
        s.send(b"both", ZERO_COPY)
        print("both", errors(s, 2))
        s.setsockopt(socket.IPPROTO_IP, 11, 1)
        family == socket.AF_INET or s.setsockopt(socket.IPPROTO_IPV6, 25, 1)
        print(errno.errorcode[s.connect_ex((peer, 1)) or 1], s.send(b"nobody"), errors(s, 1))
        while not dict(poll.poll(20000)).get(s.fileno(), 0) & select.POLLERR:
            pass
        print("refused", says(lambda: s.recvmsg(100, 500, 0x2000))[0][-6:])
        s.close()


def pipes_only():
    """tee and vmsplice, which are for pipes, on sockets of each kind; and the way they serve one: by splice from the pipe."""
    libc = ctypes.CDLL(None, use_errno=True)
    vector = struct.pack("PN", ctypes.addressof(text := ctypes.create_string_buffer(b"from memory")), 11)

    def tee(a, b, flags=2):
        n = libc.tee(a, b, 100, flags)
        return n if n >= 0 else errno.errorcode[ctypes.get_errno()]

    def vmsplice(fd):
        n = libc.vmsplice(fd, vector, 1, 2)
        return n if n >= 0 else errno.errorcode[ctypes.get_errno()]

    listener = socket.create_server(("0.0.0.0", 0))
    sockets = [socket.socket(), connected(ECHO), connected(ECHO, socket.SOCK_DGRAM), listener]
    r, w = os.pipe()
    r2, w2 = os.pipe()
    os.write(w, b"in the pipe")
    for s in sockets:
        fd = s.fileno()
        print(tee(r, fd), tee(fd, w), tee(fd, fd), tee(sockets[1].fileno(), fd), tee(r, fd, 99), vmsplice(fd))
        others = (lambda: os.splice(fd, fd, 10), lambda: os.splice(fd, sockets[2].fileno(), 10),
                  lambda: os.splice(r, fd, 10, offset_dst=0), lambda: os.splice(fd, w, 10, offset_src=0))
        print([says(other) for other in others])
    # A copy of what is in a pipe goes to the socket; the pipe keeps it.
    print(tee(r, w2), os.splice(r2, sockets[1].fileno(), 100), sockets[1].recv(100), os.read(r, 100))
    print(vmsplice(w), os.splice(r, sockets[1].fileno(), 100), sockets[1].recv(100))
    print(vmsplice(w), os.splice(r, sockets[2].fileno(), 100), sockets[2].recv(100))
    sockets[1].send(b"echoed")
    select.select([sockets[1]], [], [])
    print(os.splice(sockets[1].fileno(), w, 100), tee(r, w2), os.read(r, 100), os.read(r2, 100))


def datagram_splices():
    """splice to and from datagram sockets: a call is a datagram."""
    for family, peer in ((socket.AF_INET, PEER), (socket.AF_INET6, "::ffff:" + PEER)):
        s = socket.socket(family, socket.SOCK_DGRAM)
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 1 << 20)  # F_SETPIPE_SZ
        into = lambda len: says(lambda: os.splice(r, s.fileno(), len))
        out = lambda len: says(lambda: os.splice(s.fileno(), w, len))
        os.write(w, b"abc")
        s.bind(("", 0) if family == socket.AF_INET else ("::", 0))
        family == socket.AF_INET and print("without a peer", into(100))
        s.connect((peer, ECHO))
        print(into(2), s.recv(100), into(0), into(100), s.recv(100))
        os.write(w, b"x" * 5000)
        os.write(w, b"y" * 3000)
        print(into(100000), len(s.recv(65536)))
        os.write(w, bytes(70000))
        os.set_blocking(r, False)
        print("too long", into(70000), len(os.read(r, 100000)), into(100))
        for text in (b"A" * 1400, b"", b"BB"):
            s.send(text)
        print(out(1000), len(os.read(r, 10000)), out(100), out(1), os.read(r, 10))
        s.setblocking(False)
        print("nothing", out(100))
        s.send(b"z")
        select.select([s], [], [])
        os.set_blocking(w, False)
        while not isinstance(says(lambda: os.write(w, bytes(4096))), str):
            pass
        print("full pipe", out(100), s.recv(100))
        os.close(w)
        os.set_blocking(r, True)
        while os.read(r, 1 << 20):
            pass
        print("closed pipe", into(100))
        s.close()


# The levels and names that Python does not have all of.
IP, V6, SOL = 0, 41, socket.SOL_SOCKET
TOS, TTL, CLASS, HOPS, PRIORITY, QUICK_ACK = (IP, 1), (IP, 2), (V6, 67), (V6, 16), (SOL, 12), (6, 12)


def told(s, options):
    return [says(lambda: s.getsockopt(*option)) for option in options]


def own(family):
    """An address of this host's, and what IPv4 is called there."""
    v4 = PEER if PEER.startswith("127.") else "10.77.0.2"
    if family == socket.AF_INET:
        return v4, v4
    return "::1" if PEER.startswith("127.") else "fd77::2", "::ffff:" + v4


def header_fields():
    """IPv4's fields and IPv6's are not the same ones, and a hop limit may be 0."""
    asked = (TOS, TTL, CLASS, HOPS)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET6, kind)
        s.bind(("::", 0))
        print("at first", told(s, asked))
        for option, value in ((TOS, 0x28), (CLASS, 0x50), (TTL, 9), (HOPS, 0), (HOPS, 7), (CLASS, 3), (TOS, 0x2b), (HOPS, -1), (TTL, -1),
                              (TTL, 0), (CLASS, -1), (HOPS, -2), (HOPS, 256), (CLASS, 256), (TOS, 0)):
            print(option, value, says(lambda: s.setsockopt(*option, value)), told(s, asked))
    s = socket.socket()
    s.bind(("", 0))
    print("of IPv4", says(lambda: s.setsockopt(*TTL, 0)), says(lambda: s.setsockopt(*HOPS, 0)))
    # What another one sees of it.
    hears = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    hears.bind(("::", 0))
    for option in ((V6, 51), (V6, 66), (IP, 12), (IP, 13)):  # RECVHOPLIMIT, RECVTCLASS, RECVTTL, RECVTOS
        hears.setsockopt(*option, 1)
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", 0))
    for option, value in ((TOS, 0x28), (TTL, 9), (CLASS, 0x50), (HOPS, 0)):
        s.setsockopt(*option, value)
        for address in own(socket.AF_INET6):
            s.sendto(b"x", (address, hears.getsockname()[1]))
            ancillary = hears.recvmsg(10, 200)[1]
            print(option, address[:8] == "::ffff:", sorted((level, name, value.hex()) for level, name, value in ancillary))
    # A connection of which each packet may go no hop.
    listener = socket.socket(socket.AF_INET6)
    listener.bind(("::", 0))
    listener.setsockopt(*HOPS, 0)
    listener.listen()
    for address in own(socket.AF_INET6):
        client = socket.socket(socket.AF_INET6)
        client.setsockopt(*HOPS, 0)
        client.connect((address, listener.getsockname()[1]))
        accepted, _ = listener.accept()
        client.send(b"there")
        print(accepted.recv(10), accepted.send(b"back"), client.recv(10), told(accepted, asked), told(client, asked))


def priorities():
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            for before in (True, False):
                s = socket.socket(family, kind)
                before or s.bind(("", 0))
                for value in (0, 1, 6, 7, 255, -1, (1 << 31) - 1, -(1 << 31), 5):
                    print(says(lambda: s.setsockopt(*PRIORITY, value)), told(s, (PRIORITY,)))
                # Linux has it from the type of service, once that is another one.
                for tos in (0, 0x10, 0x10, *range(0, 256, 3), -1, 0x110):
                    print(tos, says(lambda: s.setsockopt(*TOS, tos)), told(s, (PRIORITY, TOS)))
                s.setsockopt(*PRIORITY, 3)
                print("again", says(lambda: s.setsockopt(*TOS, 0x110)), told(s, (PRIORITY,)))
                print("as a byte", says(lambda: s.setsockopt(*TOS, b"\x08")), told(s, (PRIORITY, TOS)))
                if family == socket.AF_INET6:
                    print("class", says(lambda: s.setsockopt(*CLASS, 0x10)), told(s, (PRIORITY,)))
                before and s.bind(("", 0))
                print("bound", told(s, (PRIORITY, TOS)), told(s.dup(), (PRIORITY,)))


def quick_acks():
    """listen(2) and connect(2) forget what was said of it before."""
    for value in (-1, 0, 1, 2, 3):
        for before in (True, False):
            listener = socket.socket()
            listener.bind((own(socket.AF_INET)[0], 0))
            before and listener.setsockopt(*QUICK_ACK, value)
            first = told(listener, (QUICK_ACK,))
            listener.listen()
            before or listener.setsockopt(*QUICK_ACK, value)
            client = socket.socket()
            client.setsockopt(*QUICK_ACK, value)
            fresh = told(client, (QUICK_ACK,))
            client.connect(listener.getsockname())
            accepted, _ = listener.accept()
            print(value, before, first, told(listener, (QUICK_ACK,)), told(accepted, (QUICK_ACK,)), fresh, told(client, (QUICK_ACK,)))
            for s in (accepted, client):
                s.setsockopt(*QUICK_ACK, value)
                print("connected", told(s, (QUICK_ACK,)))
            listener.listen(3)
            print("listens again", told(listener, (QUICK_ACK,)))


def accepted_options():
    """What an accepted stream has of its listener, and of the packet that opened it."""
    asked = (TOS, TTL, (IP, 33), (IP, 34), CLASS, HOPS, (V6, 17), (V6, 18), (V6, 19), (V6, 29), PRIORITY, (SOL, 36), QUICK_ACK)
    settings = (TOS, 0x10), (TTL, 33), (CLASS, 0x20), (HOPS, 44), (PRIORITY, 3), ((SOL, 36), 9), ((IP, 34), 0), ((V6, 19), 0), ((V6, 29), 0), ((IP, 49), 0)
    for family in (socket.AF_INET, socket.AF_INET6):
        for address in dict.fromkeys(own(family)):
            for said in ((), settings):
                listener = socket.socket(family)
                listener.bind(("", 0))
                print([says(lambda: listener.setsockopt(*option, value)) for option, value in said])
                listener.listen()
                for hops in (64, 77, 1):
                    client = socket.socket(family)
                    client.setsockopt(*TTL, hops)
                    family == socket.AF_INET6 and client.setsockopt(*HOPS, hops + 1)
                    client.connect((address, listener.getsockname()[1]))
                    accepted, _ = listener.accept()
                    print(family, hops, told(listener, asked), told(accepted, asked), told(client, asked))
                    # From the packets that come later it has nothing.
                    client.setsockopt(*TTL, 99)
                    client.send(b"x")
                    print(accepted.recv(1), told(accepted, asked), says(lambda: accepted.setsockopt(IP, 33, 5)))


globals()[sys.argv[2]]()
