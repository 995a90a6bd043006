"""What a program sends to itself is there when the call returns: it asks the other end without a wait. What it prints is compared with the kernel's."""

import errno
import os
import select
import socket
import struct
import sys

ROUNDS = 100
READ = select.POLLIN | select.POLLRDHUP | select.POLLHUP | select.POLLERR
LINGER = struct.pack("ii", 1, 0)


def pair(family=socket.AF_INET, host="127.0.0.1"):
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.socket(family)
        client.connect(listener.getsockname())
        listener.setblocking(False)
        server = listener.accept()[0]
    for s in client, server:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # when an acknowledgment leaves is not the question
    return client, server


def says(call, *arguments):
    try:
        return call(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]


def polled(s):
    poll = select.poll()
    poll.register(s, READ)
    return [events for _, events in poll.poll(0)]


def count(what, sees):
    """What is seen in nine of ten rounds; all that is seen, where nothing is. (Where another thread of the stack is at a packet, it comes a moment later.)"""
    seen = [repr(sees()) for _ in range(ROUNDS)]
    often = max(set(seen), key=seen.count)
    if seen.count(often) * 10 >= ROUNDS * 9:
        print(what, "as a rule", often)
    else:
        print(what, *[f"{seen.count(one)} times {one}" for one in sorted(set(seen))])


def arrives():
    """Text, both ways, by poll, by an edge of epoll, and by a read that does not wait."""
    for family, host in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
        a, b = pair(family, host)
        with a, b, select.epoll() as both:
            a.setblocking(False)
            b.setblocking(False)
            for s in a, b:
                both.register(s, select.EPOLLIN | select.EPOLLET)

            def edges():
                a.send(b"to b")
                b.send(b"to a")
                found = len(both.poll(0))
                return found, says(a.recv, 10), says(b.recv, 10)

            count(f"{host} polled", lambda: (a.send(b"x"), polled(b), says(b.recv, 10)))
            count(f"{host} edges", edges)


def datagrams():
    """A datagram, and the ICMP error about one."""
    with socket.socket(type=socket.SOCK_DGRAM) as a, socket.socket(type=socket.SOCK_DGRAM) as b:
        b.bind(("127.0.0.1", 0))
        b.setblocking(False)
        a.connect(b.getsockname())
        count("datagram", lambda: (a.send(b"x"), polled(b), says(b.recv, 10)))
        b.close()
        count("refused", lambda: (a.send(b"x"), polled(a), a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))


def connects():
    """A connect that does not wait is through when it returns, and waits in its listener."""
    with socket.create_server(("127.0.0.1", 0), backlog=ROUNDS) as listener:
        listener.setblocking(False)

        def waits(blocking):
            with socket.socket() as s:
                s.setblocking(blocking)
                code = s.connect_ex(listener.getsockname())
                polled_now = bool(select.select([listener], [], [], 0)[0])
                accepted = says(listener.accept)
                done = s.connect_ex(listener.getsockname())
                if isinstance(accepted, tuple):
                    accepted[0].close()
                    accepted = "accepted"
                return errno.errorcode.get(code, code), polled_now, accepted, errno.errorcode.get(done, done)

        count("waits", lambda: waits(True))
        count("does not wait", lambda: waits(False))
        free = listener.getsockname()
    with socket.socket() as s:
        s.setblocking(False)
        code, late = s.connect_ex(free), s.connect_ex(free)
        print("refused", errno.errorcode[code], errno.errorcode[late])


def ends():
    """The end of a connection, by close, shutdown and reset."""

    def closed():
        a, b = pair()
        with b:
            a.close()
            return polled(b), b.recv(1)

    def shut():
        a, b = pair()
        with a, b:
            a.send(b"text")
            a.shutdown(socket.SHUT_WR)
            return polled(b), b.recv(10), b.recv(10), polled(a)

    def reset():
        a, b = pair()
        with b:
            a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            a.send(b"text")
            a.close()
            return polled(b), says(b.getpeername), says(b.recv, 1), says(b.recv, 10), says(b.recv, 10), says(b.recv, 10)

    def unread():
        a, b = pair()
        with b:
            b.send(b"text")
            a.close()
            return polled(b), says(b.send, b"x"), says(b.send, b"x")

    for sees in closed, shut, reset, unread:
        count(sees.__name__, sees)


def more():
    """What MSG_MORE held leaves with the send that follows, in one segment."""
    read, write = os.pipe()
    with open(__file__, "rb") as file:

        def ways(a):
            os.write(write, b"3")
            return {
                "send": lambda: a.send(b"3"),
                "sendmsg": lambda: a.sendmsg([b"", b"3"]),
                "write": lambda: os.write(a.fileno(), b"3"),
                "sendfile": lambda: os.sendfile(a.fileno(), file.fileno(), 0, 1),
                "splice": lambda: os.splice(read, a.fileno(), 1) if hasattr(os, "splice") else a.send(b"3"),
            }

        for way in ways(None):
            a, b = pair()
            with a, b:
                b.setblocking(False)

                def held():
                    calls = ways(a)
                    if way != "splice":
                        os.read(read, 1)
                    a.send(b"1", socket.MSG_MORE)
                    a.send(b"2", socket.MSG_MORE)
                    before = says(b.recv, 10)
                    calls[way]()
                    return before, polled(b), len(says(b.recv, 10))

                a.send(b"0")
                b.recv(10)
                count(f"more, then {way}", held)


globals()[sys.argv[1]]()
