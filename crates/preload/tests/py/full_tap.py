# A program whose TAP takes little and gives way slowly: no call waits for it, and nothing is lost. Usage: full_tap.py send | count.
import fcntl
import os
import select
import socket
import struct
import sys
import time

WHERE = ("10.77.0.9", 9000)
TUNSETSNDBUF = 0x400454D4


def count():
    """Behind the slow link: what comes, until the last."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    try:
        s.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)  # SO_RCVBUFFORCE
    except PermissionError:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 28)
    s.bind(("0.0.0.0", WHERE[1]))
    print("counts", flush=True)
    seen = 0
    while True:
        data = s.recv(2000)
        seen += 1
        if data.startswith(b"last"):
            print("of", int(data[4:]), "came", seen, flush=True)
            return


def narrow():
    """The TAP's descriptor is among ours, whichever call opened it."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "/dev/net/tun":
                fcntl.ioctl(int(name), TUNSETSNDBUF, struct.pack("i", 10_000))
                return
        except OSError as e:
            print(name, e, file=sys.stderr)
    sys.exit("no TAP")


def send():
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.connect(WHERE)
    s.send(b"first")  # and the neighbour is found
    own = socket.create_server(("10.77.0.2", 0))
    time.sleep(1)
    narrow()
    s.setblocking(False)
    sent, begin = 1, time.monotonic()
    try:
        while time.monotonic() - begin < 40:
            s.send(bytes(1000))
            sent += 1
    except BlockingIOError:
        print("full", flush=True)
    # Meanwhile the other calls go on.
    near = socket.create_connection(own.getsockname())
    far, _ = own.accept()
    near.send(b"x")
    print("own", far.recv(1), flush=True)
    input()  # the link is fast again
    print("writable", select.select([], [s], [], 30)[1] == [s])
    s.settimeout(30)
    s.send(b"last%d" % (sent + 1))
    time.sleep(1)


{"send": send, "count": count}[sys.argv[1]]()
