"""A program that talks to itself over loopback addresses; what it prints is compared with the kernel's."""

import errno
import os
import select
import socket
import sys
import threading


def name(error):
    return errno.errorcode[error.errno]


def echo(listener):
    stream, peer = listener.accept()
    with stream:
        stream.settimeout(20)
        while data := stream.recv(65536):
            stream.sendall(data)


def streams(family, bound, peer):
    listener = socket.create_server((bound, 0), family=family)
    listener.settimeout(20)
    server = threading.Thread(target=echo, args=(listener,))
    server.start()
    client = socket.socket(family)
    client.settimeout(20)
    client.connect((peer, listener.getsockname()[1]))
    ends = client.getsockname()[0], client.getpeername()[0]
    text = os.urandom(300_000)
    sender = threading.Thread(target=lambda: (client.sendall(text), client.shutdown(socket.SHUT_WR)))
    sender.start()
    got = b""
    while data := client.recv(65536):
        got += data
    sender.join()
    server.join()
    print("stream", bound, peer, *ends, got == text)


def datagrams(family, bound, peer):
    with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client:
        server.bind((bound, 0))
        for length in (0, 1, 1400, 20_000, 65_000):
            client.sendto(bytes(length), (peer, server.getsockname()[1]))
            ready = select.select([server], [], [], 20)[0]
            data, back = server.recvfrom(65536) if ready else (b"nothing", None)
            server.sendto(data, back)
            ready = select.select([client], [], [], 20)[0]
            print("datagram", bound, peer, len(data), back[0], bool(ready) and len(client.recv(65536)))


def refusals():
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    for host in ("127.0.0.1", "127.3.2.1", "0.0.0.0"):
        try:
            socket.create_connection((host, port), 20)
        except OSError as error:
            print("closed", host, name(error))
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.send(b"x")
        client.settimeout(20)
        try:
            client.recv(1)
        except OSError as error:
            print("closed datagram", name(error))
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as client:
            client.bind(("127.0.0.1", 0))
            try:
                client.connect(("192.0.2.1", 9))
            except OSError as error:
                print("away", name(error))


V4, V6 = socket.AF_INET, socket.AF_INET6
ROWS = [
    (V4, "127.0.0.1", "127.0.0.1"),
    (V4, "127.4.5.6", "127.4.5.6"),
    (V4, "0.0.0.0", "127.0.0.9"),
    (V4, "127.0.0.1", "0.0.0.0"),
    (V6, "::1", "::1"),
    (V6, "::", "::1"),
]
if named := "named" in sys.argv:  # only servers that say at which address
    ROWS = [row for row in ROWS if row[1] not in ("0.0.0.0", "::")]
for kind in (streams, datagrams):
    for row in ROWS:
        kind(*row)
if not named:
    datagrams(V6, "::", "::ffff:127.0.0.1")
refusals()
ours = socket.create_server(("127.0.0.1", 0))
with open("/proc/net/tcp") as file:
    seen = f":{ours.getsockname()[1]:04X} " in file.read()
print("whose", "kernel" if seen else "netchan", file=sys.stderr)
