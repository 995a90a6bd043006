"""The kernel's clients of forking.py, which it starts; what they learn is printed."""

import errno
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

ADDRESS = "10.77.0.2"
LIMIT_S = 30


def start(how, wanted="ready", errors=None):
    program = os.path.join(os.path.dirname(__file__), "forking.py")
    environment = dict(os.environ, LD_PRELOAD=os.environ["LIBRARY"])
    server = subprocess.Popen(
        [sys.executable, program, how, ADDRESS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    await_line(server, wanted)
    return server


def await_line(server, wanted):
    line = server.stdout.readline().strip()
    assert line == wanted, (line, wanted)


def go_on(server):
    server.stdin.write("\n")
    server.stdin.flush()


def connect(limit_s=LIMIT_S):
    return socket.create_connection((ADDRESS, 7000), limit_s)


def learn(stream):
    """What an open connection hears."""
    try:
        return stream.recv(10) or "end"
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))


def attempt(limit_s=LIMIT_S):
    """Connecting, and what comes of it."""
    try:
        with connect(limit_s) as stream:
            return learn(stream)
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))


def prefork(how):
    server = start(how)
    waiting = connect()
    go_on(server)
    await_line(server, "used")
    print(how, "waiting:", learn(waiting))
    new = {attempt() for _ in range(4)}
    print(how, "new:", new)
    go_on(server)
    await_line(server, "serving")
    deadline = time.monotonic() + LIMIT_S
    while (came := attempt()) != b"here" and time.monotonic() < deadline:
        pass
    print(how, "parent:", came)
    await_line(server, "served")
    server.wait(LIMIT_S)


def served():
    server = start("served")
    heard = [attempt()]
    await_line(server, "used")
    while heard.count(b"here") < 30 or heard.count(b"child 7000") < 3:
        heard.append(attempt())
        if heard[-1] not in (b"here", b"child 7000") or len(heard) > 2000:
            break
    print("served:", *sorted({str(what) for what in heard}))
    go_on(server)
    server.wait(LIMIT_S)


def named():
    server = start("named", "ready 0")
    first = connect()
    go_on(server)
    print("named:", learn(first))
    server.wait(LIMIT_S)


def replaced(how):
    server = start(how)
    stream = connect()
    await_line(server, "used")
    stream.sendall(b"x")
    # What is left open takes connections, which nothing answers.
    print(how + ":", learn(stream), attempt(2 if how == "left" else LIMIT_S))
    go_on(server)
    server.wait(LIMIT_S)


def spawned():
    server = start("spawned")
    stream = connect()
    await_line(server, "used")
    print("spawned:", learn(stream))
    go_on(server)
    server.wait(LIMIT_S)


def silent():
    with tempfile.TemporaryFile("w+") as errors:
        server = start("silent", errors=errors)
        go_on(server)
        await_line(server, "used")
        errors.seek(0)
        print("silent:", errors.read().count("sockets made before fork()"))
        go_on(server)
        server.wait(LIMIT_S)


def handed(how):
    server = start(how)
    stream = connect()
    sent = random.randbytes(5_000_000)

    def send():
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    got = b""
    while block := stream.recv(1 << 16):
        got += block
    sender.join()
    await_line(server, "parent 0")
    print(how + ":", "same" if got == sent else len(got))
    go_on(server)
    server.wait(LIMIT_S)


def executed():
    server = start("executed")
    stream = connect()
    stream.sendall(b"hello to ")
    heard = b""
    while block := stream.recv(100):
        heard += block
    await_line(server, "child 0")
    print("executed:", heard)
    go_on(server)
    server.wait(LIMIT_S)


def storm():
    """Each client's answer is whole or cut short, never another's."""
    server = start("storm")
    wrong, served = [], [0]
    is_over = threading.Event()

    def echo(text):
        with connect() as stream:
            stream.sendall(text)
            stream.shutdown(socket.SHUT_WR)
            got = b""
            while block := stream.recv(1 << 16):
                got += block
        return got

    def client():
        while not is_over.is_set():
            text = random.randbytes(random.randrange(1, 100_000))
            try:
                got = echo(text)
            except OSError:
                continue
            if not text.startswith(got):
                wrong.append(len(got))
            served[0] += got == text

    assert echo(b"first") == b"first"
    go_on(server)
    await_line(server, "counted")
    clients = [threading.Thread(target=client) for _ in range(8)]
    for one in clients:
        one.start()
    await_line(server, "calm")
    is_over.set()
    for one in clients:
        one.join()
    print("storm:", wrong, "many" if served[0] > 50 else served)
    go_on(server)
    await_line(server, "left 0")
    go_on(server)
    server.wait(LIMIT_S)


def slow():
    server = start("slow")
    stream = connect()
    stream.setblocking(False)
    sent, quiet = 0, 0
    while quiet < 40:  # two seconds without room
        try:
            sent += stream.send(b"x" * 65536)
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.05)
    print("slow:", "bounded" if sent < 64 << 20 else sent)
    go_on(server)
    stream.setblocking(True)
    stream.shutdown(socket.SHUT_WR)
    heard = stream.recv(100)
    print("slow:", "whole" if heard == b"%d" % sent else (heard, sent))
    await_line(server, "child 0")
    go_on(server)
    server.wait(LIMIT_S)


def halves():
    server = start("halves")
    stream = connect()
    await_line(server, "shut")
    stream.sendall(b"x")
    time.sleep(0.5)
    stream.sendall(b"z")
    await_line(server, "child 0")
    print("halves:", learn(stream))
    go_on(server)
    server.wait(LIMIT_S)


def unread():
    server = start("unread")
    stream = connect()
    stream.sendall(b"x" * 1000)
    await_line(server, "used")
    go_on(server)
    print("unread:", learn(stream))
    go_on(server)
    server.wait(LIMIT_S)


def left_alone():
    server = start("left_alone")
    streams = [connect()]
    await_line(server, "used")
    streams += [connect() for _ in range(3)]
    go_on(server)
    await_line(server, "alone")
    heard = {learn(stream) for stream in streams}
    deadline = time.monotonic() + LIMIT_S
    while (came := attempt()) != "ECONNREFUSED" and time.monotonic() < deadline:
        pass
    print("left_alone:", "let go" if heard <= {"end", "ECONNRESET"} else heard, came)
    go_on(server)
    server.wait(LIMIT_S)


def ended(how):
    """A server that ends, with a connection that it serves and one in its accept queue."""
    server = start("ends " + how)
    stream = connect()
    await_line(server, "accepted")
    waiting = connect()
    go_on(server)
    return server, stream, waiting


def ends(how):
    server, stream, waiting = ended(how)
    print(how + ":", learn(stream), learn(stream), learn(waiting), server.wait(LIMIT_S))
    server.stdin.close()


def goes_on(how):
    server, stream, waiting = ended(how)
    print(how + ":", learn(stream), learn(waiting), server.wait(LIMIT_S), end=" ")
    go_on(server)
    print(learn(stream), end=" ")
    server.stdin.close()  # what is left in the background ends
    print(learn(stream), learn(waiting))


for how in ("accept", "poll", "epoll", "inherited", "nested", "_Fork", "SYS_clone", "SYS_clone3"):
    prefork(how)
served()
named()
silent()
handed("handed")
handed("kept")
executed()
halves()
slow()
storm()
unread()
left_alone()
replaced("replaced")
replaced("left")
spawned()
for how in ("exit", "_exit", "quick_exit", "exit_group", "SIGHUP", "SIGINT", "SIGTERM", "waiting"):
    ends(how)
for how in ("daemon", "background"):
    goes_on(how)
