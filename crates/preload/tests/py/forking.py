"""Servers that fork. Their children cannot serve on netchan; clients must learn that at once."""

import os
import select
import signal
import socket
import sys
import time

PORT = 7000


def listen():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((sys.argv[2], PORT))
    server.listen(16)
    return server


def use(server, how):
    """A child's first use of the listener."""
    try:
        if how == "accept":
            server.accept()
        elif how == "poll":
            poll = select.poll()
            poll.register(server, select.POLLIN)
            poll.poll(60_000)
        elif how == "epoll":
            select.epoll().register(server, select.EPOLLIN)
    except OSError:
        pass


def child_of(how, server):
    """The parent goes on once the child has used the listener, and tells the clients."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        use(server, how)
        print("used", flush=True)
        time.sleep(60)
        os._exit(0)
    return pid


def prefork(how):
    server = listen()
    print("ready", flush=True)
    input()  # the first client is in the accept queue
    child = child_of(how, server)
    input()
    os.kill(child, signal.SIGKILL)
    # The parent itself serves, and so is heard again.
    print("serving", flush=True)
    stream, _ = server.accept()
    stream.sendall(b"here")
    stream.close()
    print("served", flush=True)


def served():
    """A child that uses the listener of a parent that waits there does no harm."""
    server = listen()
    print("ready", flush=True)
    input()
    server.accept()[0].sendall(b"here")
    queue = select.epoll()
    queue.register(server, select.EPOLLIN)
    child = child_of("accept", server)
    for _ in range(3):
        queue.poll()
        stream, _ = server.accept()
        stream.sendall(b"here")
    os.kill(child, signal.SIGKILL)


def handed():
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            stream.recv(10)
        except OSError:
            pass
        print("used", flush=True)
        time.sleep(60)
    input()  # the connection stays open here meanwhile
    os.kill(child, signal.SIGKILL)


def ends():
    server = listen()
    print("ready", flush=True)
    input()
    print("used", flush=True)


if __name__ == "__main__":
    how = sys.argv[1]
    {"served": served, "handed": handed, "ends": ends}.get(how, lambda: prefork(how))()
