# SO_BINDTODEVICE and SO_BINDTOIFINDEX at a host with two links, nc0 and nc1, a line a fact: the same on the kernel's sockets and on netchan's.
# Usage: devices.py serve | devices.py OWN0 PEER0 OWN1 PEER1, the addresses of both ends of both links.
import errno
import fcntl
import select
import socket
import struct
import sys

BIND_TO_INDEX, IP_PKTINFO = 62, 8
SIOCGIFNAME, SIOCGIFINDEX = 0x8910, 0x8933
LIMIT = 5


def serve():
    """Connects, or sends a datagram, to where a datagram says; echoes all others and tells where they came to."""
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    echo.bind(("0.0.0.0", 9100))
    listener = socket.create_server(("0.0.0.0", 9101))
    print("serving", flush=True)
    kept = []
    while True:
        for ready in select.select([echo, listener], [], [])[0]:
            if ready is listener:
                kept.append(ready.accept())
                kept[-1][0].send(kept[-1][0].getsockname()[0].encode())
                continue
            text, info, _, sender = ready.recvmsg(100, 100)
            words = text.decode().split()
            if words[0] == "echo":
                to = socket.inet_ntoa(info[0][2][8:12])
                ready.sendto(to.encode(), sender)
            elif words[0] == "send":
                ready.sendto(words[3].encode(), (words[1], int(words[2])))
            else:
                s = socket.socket()
                s.settimeout(LIMIT)
                try:
                    s.connect((words[1], int(words[2])))
                    s.send(words[3].encode())
                    said = "connected"
                except OSError as e:
                    said = errno.errorcode[e.errno]
                kept.append(s)
                ready.sendto(said.encode(), sender)


def says(call):
    try:
        return call()
    except OSError as e:
        return "TIMEOUT" if isinstance(e, TimeoutError) and e.errno is None else errno.errorcode[e.errno]


def made(kind=socket.SOCK_DGRAM, device=None, reuse=False):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(LIMIT)
    if reuse:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if device is not None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    return s


def name(s):
    return says(lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16))


def index(s):
    return says(lambda: s.getsockopt(socket.SOL_SOCKET, BIND_TO_INDEX))


def set_name(s, value):
    return says(lambda: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, value))


def values(peers, bound):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET, kind)
        if bound:
            s.bind(("0.0.0.0", 0))
        print("unbound", name(s), index(s))
        print("unknown", set_name(s, b"nonesuch"), name(s))
        print("empty", set_name(s, b""), set_name(s, b"\0"), set_name(s, b"\0\0\0\0nc0"))
        for given in (b"nc0", b"nc1\0", b"nc0\0garbage"):
            print(given, set_name(s, given), name(s), index(s) > 0)
        room = says(lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 15))
        print("little room", room)
        print("a long name", set_name(s, b"nc0456789012345678901234567890"), name(s))
        print("unbinds", set_name(s, b""), name(s), index(s))
        set_name(s, b"nc1")
        number = index(s)
        asked = struct.pack("16si20x", b"", number)
        told = says(lambda: fcntl.ioctl(s, SIOCGIFNAME, asked))
        print("its index has its name", told[:4])
        asked = struct.pack("16si20x", b"nc1", 0)
        told = says(lambda: fcntl.ioctl(s, SIOCGIFINDEX, asked))
        print("and the name the index", struct.unpack("16xi20x", told)[0] == number)
        print("0 unbinds", says(lambda: s.setsockopt(socket.SOL_SOCKET, BIND_TO_INDEX, 0)), name(s))
        print("by index", says(lambda: s.setsockopt(socket.SOL_SOCKET, BIND_TO_INDEX, number)), name(s))
        for wrong in (-1, -9999):
            print("by", wrong, says(lambda: s.setsockopt(socket.SOL_SOCKET, BIND_TO_INDEX, wrong)), name(s))
        short = says(lambda: s.setsockopt(socket.SOL_SOCKET, BIND_TO_INDEX, b"\0\0"))
        print("too short an index", short)
        s.close()


def hears(s):
    ready, _, _ = select.select([s], [], [], LIMIT)
    return s.recv(100).decode() if ready else "nothing"


def datagrams_in(own, peers):
    asker = made()
    sockets = {b"nc0": made(device=b"nc0"), b"nc1": made(device=b"nc1")}
    for s in sockets.values():
        print("each has the port for itself", says(lambda: s.bind(("0.0.0.0", 7001))))
    print("the port is taken for others", says(lambda: made().bind(("0.0.0.0", 7001))))
    for at, device in ((0, b"nc0"), (1, b"nc1")):
        # What is for the other link's socket would come first.
        asker.sendto(f"send {own[at]} 7001 by{at}".encode(), (peers[at], 9100))
        print(device, hears(sockets[device]))
    idle = [select.select([s], [], [], 0)[0] for s in sockets.values()]
    print("nothing else", idle)
    # Taken off, one hears both; the other goes before it at its link.
    set_name(sockets[b"nc0"], b"")
    for at in (0, 1):
        asker.sendto(f"send {own[at]} 7001 by{at}".encode(), (peers[at], 9100))
        wanted = sockets[b"nc0" if at == 0 else b"nc1"]
        print("then", at, hears(wanted))
    sockets[b"nc1"].close()
    asker.sendto(f"send {own[1]} 7001 again".encode(), (peers[1], 9100))
    print("alone it hears both", hears(sockets[b"nc0"]))
    # A connected one.
    s = made(device=b"nc1")
    s.connect((peers[1], 9100))
    s.send(b"echo")
    print("connected", hears(s) == peers[1], s.getsockname()[0] == own[1])


def datagrams_out(own, peers):
    s = made()
    s.sendto(b"echo", (peers[0], 9100))
    print("by the route", hears(s) == peers[0])
    # The other link's peer has this address, too, and answers where it was asked.
    for at, device in ((0, b"nc0"), (1, b"nc1"), (0, b"nc0")):
        set_name(s, device)
        s.sendto(b"echo", ("10.99.0.1", 9100))
        print(device, hears(s))
        s.sendto(b"echo", (peers[at], 9100))
        print(device, hears(s) == peers[at])
    s = made(device=b"nc1")
    s.connect(("10.99.0.1", 9100))
    print("connected from", s.getsockname()[0] == own[1])


def streams(own, peers):
    for at, device in ((0, b"nc0"), (1, b"nc1")):
        s = made(socket.SOCK_STREAM, device)
        s.connect(("10.99.0.1", 9101))
        print(device, "from", s.getsockname()[0] == own[at], s.recv(100), name(s))
        print("and stays there", set_name(s, device))
    asker = made()
    asker.bind(("0.0.0.0", 7003))
    listener = made(socket.SOCK_STREAM, b"nc0", True)
    listener.bind(("0.0.0.0", 7002))
    listener.listen()

    def ask(at, text):
        asker.sendto(f"connect {own[at]} 7002 {text}".encode(), (peers[at], 9100))
        return hears(asker)

    print("by its link", ask(0, "a"))
    accepted, _ = listener.accept()
    accepted.settimeout(LIMIT)
    print(accepted.recv(100), name(accepted))
    print("by the other", ask(1, "b"))
    print("moved", set_name(listener, b"nc1"), ask(0, "c"), ask(1, "d"))
    print(listener.accept()[0].recv(100))
    other = made(socket.SOCK_STREAM, b"nc0", True)
    print("beside it", says(lambda: other.bind(("0.0.0.0", 7002))), says(other.listen))
    print("each by its own", ask(0, "e"), ask(1, "f"))
    print(other.accept()[0].recv(100), listener.accept()[0].recv(100))
    print("unbound", set_name(listener, b""), says(other.close), ask(0, "g"), ask(1, "h"))
    print(sorted(listener.accept()[0].recv(100) for _ in range(2)))
    print("accepted before", name(accepted))


if sys.argv[1] == "serve":
    serve()
OWN, PEERS = sys.argv[1:4:2], sys.argv[2:5:2]
for bound in (False, True):
    values(PEERS, bound)
datagrams_in(OWN, PEERS)
datagrams_out(OWN, PEERS)
streams(OWN, PEERS)
