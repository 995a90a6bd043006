#!/usr/bin/env python3
"""HTTP over netchan, by ctypes: fetch.py LINK ADDRESSES URL writes what the server says to the standard output.

  fetch.py tap:nc0,peer=10.77.0.1/24 10.77.0.2/24 http://10.77.0.1:8000/

The URL's host is an IPv4 address. NETCHAN_LIBRARY is the library, where the system does not find it.
"""

import ctypes
import ipaddress
import os
import socket
import struct
import sys
import urllib.parse

netchan = ctypes.CDLL(os.environ.get("NETCHAN_LIBRARY", "libnetchan.so.0"), use_errno=True)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


HANDLE, TEXT, SIZE, SSIZE, INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_int
for name, result, arguments in [
    ("error", TEXT, []),
    ("open_link", HANDLE, [TEXT, TEXT, TEXT]),
    ("end", INT, [HANDLE]),
    ("socket", HANDLE, [HANDLE, INT, INT, INT]),
    ("connect", INT, [HANDLE, TEXT, ctypes.c_uint]),
    ("send", SSIZE, [HANDLE, TEXT, SIZE, INT]),
    ("peek_segments", INT, [HANDLE, ctypes.POINTER(Iovec), INT]),
    ("consume", SSIZE, [HANDLE, SIZE]),
    ("close", INT, [HANDLE]),
]:
    function = getattr(netchan, "netchan_" + name)
    function.restype, function.argtypes = result, arguments


def checked(result):
    """What a call returned, unless it failed."""
    if result is None or result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def received(stream):
    """The text of a stream, as views of where it lies: each is good until the next is asked for."""
    pieces = (Iovec * 16)()
    while count := checked(netchan.netchan_peek_segments(stream, pieces, len(pieces))):
        for piece in pieces[:count]:
            yield memoryview((ctypes.c_char * piece.len).from_address(piece.base)).toreadonly()
        checked(netchan.netchan_consume(stream, sum(piece.len for piece in pieces[:count])))


def fetch(stack, url, out):
    """Writes the body of what a server answers to a file."""
    url = urllib.parse.urlsplit(url)
    host = ipaddress.IPv4Address(url.hostname)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", url.port or 80) + host.packed + bytes(8)
    stream = checked(netchan.netchan_socket(stack, socket.AF_INET, socket.SOCK_STREAM, 0))
    try:
        checked(netchan.netchan_connect(stream, address, len(address)))
        request = f"GET {url.path or '/'} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode()
        checked(netchan.netchan_send(stream, request, len(request), 0))
        head, body = b"", False
        for view in received(stream):
            if body:
                out.write(view)
                continue
            head += view
            if b"\r\n\r\n" in head:
                head, rest = head.split(b"\r\n\r\n", 1)
                body = True
                out.write(rest)
        status = head.split(b"\r\n")[0].decode()
        if not body or status.split()[1:2] != ["200"]:
            raise RuntimeError(status or "no answer")
    finally:
        netchan.netchan_close(stream)


def main(link, addresses, url):
    stack = netchan.netchan_open_link(link.encode(), addresses.encode(), None)
    if stack is None:
        sys.exit(f"fetch.py: {netchan.netchan_error().decode()}")
    fetch(stack, url, sys.stdout.buffer)
    sys.stdout.flush()
    netchan.netchan_end(stack)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
