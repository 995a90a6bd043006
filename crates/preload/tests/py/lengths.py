"""Lengths of addresses, given and to be filled, that are none: negative ones, too short and too long ones. What it prints is compared with the kernel's."""

import ctypes
import errno
import select
import socket
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
LENGTHS = [-1, -(2**31), 0, 1, 2, 8, 15, 16, 17, 27, 28, 127, 128, 129, 1000, 2**31 - 1]
KINDS = {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM}


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_len", ctypes.c_uint),
        ("vectors", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


def says(result):
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def raw(address, port):
    return struct.pack("=HH4s", socket.AF_INET, socket.htons(port), socket.inet_aton(address)) + bytes(120)


def unsigned(length):
    return ctypes.c_uint(length & 0xFFFFFFFF)


def pair(kind):
    if kind == "stream":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            a = socket.create_connection(listener.getsockname())
            return a, listener.accept()[0]
    a, b = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    for s in a, b:
        s.bind(("127.0.0.1", 0))
    a.connect(b.getsockname())
    return a, b


def message(name, length, size):
    buffer = ctypes.create_string_buffer(64)
    vector = Vector(ctypes.addressof(buffer), size)
    made = Message(name and ctypes.addressof(name), length & 0xFFFFFFFF, ctypes.addressof(vector), 1, None, 0, 0)
    made.kept = buffer, vector, name
    return made


def received(kind, length):
    place, buffer = ctypes.create_string_buffer(128), ctypes.create_string_buffer(64)
    for name in place, None:
        a, b = pair(kind)
        with a, b:
            a.send(b"hello")
            select.select([b], [], [], 20)
            told = unsigned(length)
            got = says(LIBC.recvfrom(b.fileno(), buffer, 64, 0, name, ctypes.byref(told)))
            left = says(LIBC.recv(b.fileno(), buffer, 64, socket.MSG_DONTWAIT))
            print(kind, "recvfrom", bool(name), length, got, told.value, left)
        a, b = pair(kind)
        with a, b:
            a.send(b"hello")
            select.select([b], [], [], 20)
            asked = message(name, length, 64)
            got = says(LIBC.recvmsg(b.fileno(), ctypes.byref(asked), 0))
            left = says(LIBC.recv(b.fileno(), buffer, 64, socket.MSG_DONTWAIT))
            print(kind, "recvmsg", bool(name), length, got, asked.name_len, left)


def sent(kind, length):
    a, b = pair(kind)
    with a, b:
        zero, peer, any_host = bytes(128), raw(*b.getsockname()), raw("0.0.0.0", b.getsockname()[1])
        for state in "new", "bound", "connected":
            for what, to in ("nothing", None), ("zeros", zero), ("address", peer), ("this host", any_host):
                name = to and ctypes.create_string_buffer(to, 128)
                with socket.socket(type=KINDS[kind]) as new:
                    if state == "bound":
                        new.bind(("127.0.0.1", 0))
                    fd = (a if state == "connected" else new).fileno()
                    first = says(LIBC.sendto(fd, b"abc", 3, socket.MSG_NOSIGNAL, name, unsigned(length)))
                    given = message(name, length, 3)
                    then = says(LIBC.sendmsg(fd, ctypes.byref(given), socket.MSG_NOSIGNAL))
                    print(kind, state, "send to", what, length, first, then)


def named(kind, length):
    a, b = pair(kind)
    with a, b:
        for call in "getsockname", "getpeername":
            place, told = ctypes.create_string_buffer(128), unsigned(length)
            print(kind, call, length, says(getattr(LIBC, call)(a.fileno(), place, ctypes.byref(told))), told.value)
        for what, peer in ("zeros", bytes(128)), ("address", raw(*b.getsockname())):
            with socket.socket(type=KINDS[kind]) as new:
                own = peer if what == "zeros" else raw("127.0.0.1", 0)
                print(kind, "bind", what, length, says(LIBC.bind(new.fileno(), own, unsigned(length))))
                if kind == "datagram" or what == "zeros":
                    print(kind, "connect", what, length, says(LIBC.connect(new.fileno(), peer, unsigned(length))))
    if kind == "stream":
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
            place, told = ctypes.create_string_buffer(128), unsigned(length)
            taken = LIBC.accept(listener.fileno(), place, ctypes.byref(told))
            print("accept", length, says(min(taken, 0)), told.value)


for kind in KINDS:
    for length in LENGTHS:
        received(kind, length)
        sent(kind, length)
        named(kind, length)
