"""Servers that fork: what children do with the sockets that they inherit."""

import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time

PORT = 7000
HOW = "accept", "poll", "epoll", "inherited", "nested"


def listen(backlog=16):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((sys.argv[2], PORT))
    server.listen(backlog)
    return server


def answer(server):
    """One client, if no other process takes it."""
    try:
        stream, _ = server.accept()
    except BlockingIOError:
        return
    stream.sendall(b"child %d" % stream.getsockname()[1])
    stream.close()


def use(server, how, queue):
    """What a child does with the listener."""
    try:
        if how == "accept":
            while True:
                answer(server)
        elif how == "poll":
            poll = select.poll()
            poll.register(server, select.POLLIN)
            while poll.poll(60_000):
                answer(server)
        elif how == "epoll":
            queue = select.epoll()
            queue.register(server, select.EPOLLIN)
            while queue.poll(60):
                answer(server)
        elif how == "inherited":
            while queue.poll(60):
                answer(server)
        elif how == "nested":
            poll = select.poll()
            poll.register(queue, select.POLLIN)
            while poll.poll(60_000):
                answer(server)
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
    """The child says when it begins."""
    pid = bare(how) if how in ("_Fork", "SYS_clone", "SYS_clone3") else os.fork()
    if pid == 0:
        signal.alarm(60)
        print("used", flush=True)
        use(server, how if how in HOW else "accept", queue)
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
    """Parent and child accept from one queue, whoever comes first; the parent has waited before the child came."""
    server = listen()
    server.setblocking(False)
    queue = select.epoll()
    queue.register(server, select.EPOLLIN)
    print("ready", flush=True)
    child = None
    queue.register(0, select.EPOLLIN)
    while 0 not in dict(queue.poll()):
        try:
            stream, _ = server.accept()
        except BlockingIOError:
            continue
        stream.sendall(b"here")
        stream.close()
        child = child or child_of("epoll", server)
        time.sleep(0.01)  # its turn
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
    """A server whose standard error goes to /dev/null once it serves; a child tries what cannot be shared."""
    bound = socket.socket()
    bound.bind((sys.argv[2], PORT))
    print("ready", flush=True)
    input()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            bound.recv(10)
        except OSError:
            pass
        print("used", flush=True)
        time.sleep(60)
    input()
    end(child)


def handed(closes):
    """A child serves a connection that its parent has accepted, and closes or not."""
    server = listen()
    print("ready", flush=True)
    stream, peer = server.accept()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        server.close()
        assert stream.getpeername() == peer and stream.getsockname() == (sys.argv[2], PORT)
        of_socket = [stream.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_DOMAIN)]
        assert of_socket == [socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AF_INET], of_socket
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            stream.setsockopt(socket.IPPROTO_TCP, 9999, 1)
        except OSError as error:
            assert error.errno == errno.ENOPROTOOPT, error
        while block := stream.recv(1 << 16):
            stream.sendall(block)
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b""
        os._exit(0)
    if closes:
        stream.close()
    print("parent", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    input()


def executed():
    """A child becomes another program, whose standard input and output are the connection."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = os.fork()
    if child == 0:
        os.dup2(stream.fileno(), 0)
        os.dup2(stream.fileno(), 1)
        program = "import os, socket; s = socket.socket(fileno=0); os.write(1, s.recv(9) + repr(s.family).encode() + s.getsockname()[0].encode())"
        os.execv(sys.executable, [sys.executable, "-c", program])
    stream.close()
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    input()


def open_numbers():
    return len(os.listdir("/proc/self/fd"))


def storm():
    """Four children serve, and one is killed again and again; in the end nothing is left of it."""
    server = listen(128)
    server.setblocking(False)

    def serve(number):
        signal.alarm(60)
        os.close(0)  # as servers do
        while True:
            select.select([server], [], [])
            try:
                stream, _ = server.accept()
            except BlockingIOError:
                continue
            stream.setblocking(True)
            while block := stream.recv(1 << 16):
                stream.sendall(block)
            stream.close()

    def child(number):
        pid = os.fork()
        if pid == 0:
            try:
                serve(number)
            except OSError:
                pass
            os._exit(0)
        return pid

    children = [child(number) for number in range(4)]
    print("ready", flush=True)
    input()  # the first client was served
    time.sleep(0.5)  # and is gone
    before = open_numbers()
    print("counted", flush=True)
    for number in range(60):
        time.sleep(0.03)
        end(children[number % 4])
        children[number % 4] = child(number)
    print("calm", flush=True)
    input()  # all clients are gone
    deadline = time.monotonic() + 10
    while open_numbers() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    print("left", open_numbers() - before, flush=True)
    input()
    for pid in children:
        end(pid)


def slow():
    """A child that does not read: what its peer sends is bounded, and comes whole when it reads."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        stream.recv(1)
        sys.stdin.readline()
        total = 1
        while block := stream.recv(1 << 16):
            total += len(block)
        stream.sendall(b"%d" % total)
        os._exit(0)
    stream.close()
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.readline()


def halves():
    """The parent shuts its connection for writing: the child's writes are refused, and it reads on."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        heard = stream.recv(1, socket.MSG_WAITALL)
        try:
            for _ in range(100):
                stream.sendall(b"y")
                time.sleep(0.05)
            os._exit(1)
        except BrokenPipeError:
            pass
        heard += stream.recv(1, socket.MSG_WAITALL)
        os._exit(0 if heard == b"xz" else 2)
    stream.shutdown(socket.SHUT_WR)
    print("shut", flush=True)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    input()


def unread():
    """The last process that has a connection ends with text unread: the peer is reset."""
    server = listen()
    print("ready", flush=True)
    stream, _ = server.accept()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        stream.recv(1)  # of more
        print("used", flush=True)
        time.sleep(60)
    stream.close()
    input()
    end(child)
    input()


def left_alone():
    """No process has the listener any more: its clients are refused, those in its queue let go."""
    server = listen()
    print("ready", flush=True)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        select.select([server], [], [])
        print("used", flush=True)
        time.sleep(60)
    server.close()
    input()
    end(child)
    print("alone", flush=True)
    input()


def ends(how):
    """A process that ends: its connections hear the rest and the end of the stream, its accept queue a reset; unless a child goes on with them."""
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
        goes_on(server, stream)
    elif how == "background":
        if os.fork() == 0:
            goes_on(server, stream)


def goes_on(server, stream):
    """A child whose parent has ended."""
    waiting, _ = server.accept()
    waiting.sendall(b"behind")
    input()
    stream.sendall(b"more")
    sys.stdin.read()


if __name__ == "__main__":
    how = sys.argv[1]
    if how.startswith("ends "):
        ends(how.removeprefix("ends "))
    else:
        {"served": served, "handed": lambda: handed(True), "kept": lambda: handed(False), "executed": executed, "unread": unread, "storm": storm, "slow": slow, "halves": halves, "left_alone": left_alone, "named": named, "silent": silent, "replaced": lambda: replaced(False), "left": lambda: replaced(True), "spawned": spawned}.get(how, lambda: prefork(how))()
