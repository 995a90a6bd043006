"""Servers that fork. Their children cannot serve on netchan; clients must learn that at once."""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time

PORT = 7000
HOW = "accept", "poll", "epoll", "inherited", "nested"


def listen():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((sys.argv[2], PORT))
    server.listen(16)
    return server


def use(server, how, queue):
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
        elif how == "inherited":
            queue.poll(60)
        elif how == "nested":
            poll = select.poll()
            poll.register(queue, select.POLLIN)
            poll.poll(60_000)
    except OSError:
        pass


SYS_CLONE, SYS_CLONE3 = {"x86_64": (56, 435), "aarch64": (220, 435)}[os.uname().machine]


def bare(how):
    """A fork that runs no pthread_atfork handler."""
    libc = ctypes.CDLL(None)
    if how == "_Fork":
        return libc._Fork()
    if how == "SYS_clone":
        return libc.syscall(SYS_CLONE, signal.SIGCHLD, 0, 0, 0, 0)
    arguments = (ctypes.c_uint64 * 8)(0, 0, 0, 0, signal.SIGCHLD)
    return libc.syscall(SYS_CLONE3, arguments, ctypes.sizeof(arguments))


def child_of(how, server, queue=None):
    """The parent goes on once the child has used the listener, and tells the clients."""
    pid = bare(how) if how in ("_Fork", "SYS_clone", "SYS_clone3") else os.fork()
    if pid == 0:
        signal.alarm(60)
        use(server, how if how in HOW else "accept", queue)
        print("used", flush=True)
        time.sleep(60)
        os._exit(0)
    return pid


def end(child):
    """The parent ends only once it is gone: what it says at its end is of children that go on."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def prefork(how):
    server = listen()
    queue = select.epoll()  # the parent itself does not wait at it yet
    if how in ("inherited", "nested"):
        queue.register(server, select.EPOLLIN)
    print("ready", flush=True)
    input()  # the first client is in the accept queue
    child = child_of(how, server, queue)
    input()
    end(child)
    # The parent itself serves, and so is heard again.
    print("serving", flush=True)
    if how in ("inherited", "nested"):
        queue.poll(60)
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
    end(child)


def named():
    """A child that only asks for a listener's name is not about to serve, as Python's that says which socket was left open."""
    server = listen()
    child = os.fork()
    if child == 0:
        try:
            repr(server), server.getsockname()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    print("ready", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    input()  # the client is in the accept queue
    server.accept()[0].sendall(b"here")


def replaced(inheritable):
    """A process that becomes another program, to which it leaves its sockets or not."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    server.set_inheritable(inheritable)
    program = "print('used', flush=True); input()"
    os.execv(sys.executable, [sys.executable, "-c", program])


def spawned():
    """A server that starts a program for each connection, which is its standard input."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = subprocess.Popen(["sh", "-c", "cat"], stdin=stream, stdout=stream)
    stream.close()
    print("used", flush=True)
    child.wait()
    input()


def silent():
    """A server whose standard error goes to /dev/null once it serves."""
    server = listen()
    print("ready", flush=True)
    input()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    child = child_of("accept", server)
    input()
    end(child)


def handed():
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    input()  # the client knows that it is connected
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
    end(child)


def ends(how):
    """A process that ends: its connections hear the rest and the end of the stream, its accept queue a reset."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    print("accepted", flush=True)
    input()  # another one is in the accept queue
    stream.sendall(b"the rest")
    libc = ctypes.CDLL(None)
    if how == "_exit":
        os._exit(0)
    elif how in ("SIGHUP", "SIGINT", "SIGTERM"):
        number = getattr(signal, how)
        assert signal.signal(number, signal.SIG_DFL) in (signal.SIG_DFL, signal.default_int_handler)
        assert signal.getsignal(number) == signal.SIG_DFL
        os.kill(os.getpid(), number)
        time.sleep(60)
    elif how == "waiting":  # in a call of netchan's
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        stream.recv(10)
        time.sleep(60)
    elif how == "quick_exit":
        libc.quick_exit(0)
    elif how == "exit_group":
        libc.syscall({"x86_64": 231, "aarch64": 94}[os.uname().machine], 0)
    elif how == "daemon":
        libc.daemon(1, 1)
        sys.stdin.read()
    elif how == "background":
        if os.fork() == 0:
            sys.stdin.read()


if __name__ == "__main__":
    how = sys.argv[1]
    if how.startswith("ends "):
        ends(how.removeprefix("ends "))
    else:
        {"served": served, "handed": handed, "named": named, "silent": silent, "replaced": lambda: replaced(False), "left": lambda: replaced(True), "spawned": spawned}.get(how, lambda: prefork(how))()
