//! Datagram sockets that several processes hold: forking servers of UDP, in children and parent alike, after exec, and beside a child that writes what it likes.

use super::{
    handed::{says, script},
    skipped_here,
};
use std::process::Command;

/// `serve.py HOW` serves UDP port 9 in the way that it is told; each answer begins with the process that answers and the address that was asked.
/// `ask.py` asks it 300 times, all sizes, and counts.
const PROGRAMS: &str = "\
cat > serve.py <<'END'
import ctypes, os, select, socket, struct, sys, time
how = sys.argv[1]
PKTINFO = 8
def serve(server):
    while True:
        try: data, along, flags, peer = s.recvmsg(65535, 200)
        except OSError: return  # the stack has ended
        to = [a[2] for a in along if a[1] == PKTINFO]
        head = server + b' ' + (socket.inet_ntoa(to[0][8:]).encode() if to else b'-') + b' '
        s.sendmsg([head, data], [(socket.IPPROTO_IP, PKTINFO, to[0])] if to else [], 0, peer)
def each():  # as many messages in one call
    class Part(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('len', ctypes.c_size_t)]
    class Message(ctypes.Structure): _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint), ('parts', ctypes.POINTER(Part)),
        ('count', ctypes.c_size_t), ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_long), ('len', ctypes.c_uint)]
    libc = ctypes.CDLL(None, use_errno=True)
    texts = [ctypes.create_string_buffer(65536) for _ in range(8)]
    names = [ctypes.create_string_buffer(16) for _ in range(8)]
    while True:
        parts = [Part(ctypes.addressof(text), 65536) for text in texts]
        all = (Message * 8)(*[Message(ctypes.addressof(n), 16, ctypes.pointer(p), 1, None, 0, 0, 0) for n, p in zip(names, parts)])
        got = libc.recvmmsg(s.fileno(), all, 8, 0x10000, None)  # MSG_WAITFORONE
        if got < 0: return
        for m, text in zip(all[:got], texts):
            answer = b'each - ' + text.raw[:m.len]
            ctypes.memmove(text, answer, len(answer)); m.parts[0].len = len(answer)
        sent = 0
        while sent < got: sent += libc.sendmmsg(s.fileno(), ctypes.byref(all, sent * ctypes.sizeof(Message)), got - sent, 0)
if how == 'stdin':
    s = socket.socket(fileno=0); print('kind', int(s.type), s.getsockname(), flush=True); serve(b'execed'); sys.exit()
family = socket.AF_INET6 if how == 'six' else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
if family == socket.AF_INET: s.setsockopt(socket.IPPROTO_IP, PKTINFO, 1)
s.bind(('', 9)); spare = os.dup(s.fileno())
def fork():
    process = os.fork()
    if process == 0: ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with its parent
    return process
def child(what, *args):
    if fork() == 0:
        what(*args); os._exit(0)
if how in ('child', 'six'): child(serve, b'child')
if how == 'all':
    for n in range(3): child(serve, b'child%d' % n)
    serve(b'parent')
if how == 'each': child(each)
if how == 'epoll':
    def wait():
        s.setblocking(False); os.close(spare); again = socket.socket(fileno=os.dup(s.fileno()))
        epoll = select.epoll(); epoll.register(again, select.EPOLLIN)
        while epoll.poll():
            while True:
                try: data, peer = again.recvfrom(65535)
                except BlockingIOError: break
                except OSError: return
                s.sendto(b'epoll - ' + data, peer)
    child(wait)
if how == 'connected':
    def wait():
        first, peer = s.recvfrom(65535, socket.MSG_PEEK)
        s.connect(peer); print('connected', s.getpeername() == peer, flush=True)
        while True: os.write(s.fileno(), b'connected - ' + os.read(s.fileno(), 65535))
    child(wait)
if how == 'execed':
    if fork() == 0:
        os.dup2(spare, 0); os.execv(sys.executable, [sys.executable, 'serve.py', 'stdin'])
if how == 'closed':
    child(serve, b'closed'); s.close(); os.close(spare)
if how == 'wild':
    # Not by this library: messages that are no letters.
    if os.fork() == 0:
        os.dup2(spare, 1); os.environ.pop('LD_PRELOAD')
        os.execvp('sh', ['sh', '-c', 'for i in 1 2 3 4 5 6 7 8 9; do head -c 90 /dev/urandom; head -c 5000 /dev/urandom; printf x; done'])
    os.wait(); child(serve, b'tame')
if how == 'background':
    if os.fork(): os._exit(0)
    os.setsid(); serve(b'background'); sys.exit()
sys.stdin.read()
END
cat > ask.py <<'END'
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.7.8.2', 9)); s.settimeout(0.2)
end = time.monotonic() + 20
while True:
    try: s.send(b'first'); s.recv(99); break
    except OSError: assert time.monotonic() < end, 'nothing answers'
s.settimeout(2)
def answer(text):
    s.send(text)
    while True:
        got = s.recv(65535)
        if got.endswith(b' first'): continue  # an answer that came late
        server, to, rest = got.split(b' ', 2)
        assert rest == text, (len(rest), len(text))
        return server.decode(), to.decode()
found, right = set(), 0
for n in range(300):
    try: found.add(answer(b'%d' % n + os.urandom((0, 1, 30, 1400, 9000, 60000)[n % 6]))); right += 1
    except TimeoutError: pass  # UDP loses what it likes
print('answers', 'right' if right > 290 else right, *sorted({server.rstrip('0123456789') for server, to in found}), *sorted({to for _, to in found}))
END
";

fn served(how: &str, wanted: &[&str]) {
    served_by("", how, wanted);
}

/// The stack is in the process of `netchan run`.
fn served_supervised(how: &str, wanted: &[&str]) {
    served_by("--supervise ", how, wanted);
}

fn served_by(option: &str, how: &str, wanted: &[&str]) {
    let output = script(
        &format!("datagrams{}-{how}", option.trim()),
        &format!(
            "{PROGRAMS}\nmkfifo hold; ${{RUN%--}}{option}-- python3 serve.py {how} < hold 2>&1 & S=$!; exec 9> hold\n\
             python3 ask.py; $netchan show counters > counters; echo >&9; exec 9>&-\n\
             awk '$1 == \"drop_udp_of_processes\" {{ print \"dropped\", ($2 > 0) }}' counters; kill $S; wait $S"
        ),
    );
    says(output, wanted);
}

#[test]
fn a_forked_child_serves() {
    served("child", &["answers right child 10.7.8.2", "dropped 0"]);
}

#[test]
fn children_and_parent_serve_alike() {
    served("all", &["answers right", "child", "10.7.8.2"]);
}

#[test]
fn a_child_takes_and_sends_many_in_a_call() {
    served("each", &["answers right each -"]);
}

#[test]
fn a_child_waits_by_epoll_and_duplicates() {
    served("epoll", &["answers right epoll -"]);
}

#[test]
fn a_child_of_an_ipv6_socket_serves_ipv4() {
    served("six", &["answers right child -"]);
}

#[test]
fn a_child_connects() {
    served(
        "connected",
        &["connected True", "answers right connected -"],
    );
}

#[test]
fn what_a_child_becomes_serves() {
    served(
        "execed",
        &["kind 2 ('0.0.0.0', 9)", "answers right execed 10.7.8.2"],
    );
}

#[test]
fn a_child_serves_what_its_parent_has_closed() {
    served("closed", &["answers right closed 10.7.8.2"]);
}

#[test]
fn what_is_no_datagram_is_dropped_and_counted() {
    served("wild", &["answers right tame 10.7.8.2", "dropped 1"]);
}

#[test]
fn a_supervised_program_serves_from_the_background() {
    served_supervised(
        "background",
        &["answers right background 10.7.8.2", "dropped 0"],
    );
}

#[test]
fn processes_of_a_supervised_program_serve_alike() {
    served_supervised("all", &["answers right", "child parent 10.7.8.2"]);
    served_supervised("each", &["answers right each -"]);
    served_supervised("epoll", &["answers right epoll -"]);
    served_supervised("six", &["answers right child -"]);
    served_supervised("execed", &["answers right execed 10.7.8.2"]);
    served_supervised(
        "connected",
        &["connected True", "answers right connected -"],
    );
    served_supervised("wild", &["answers right tame 10.7.8.2", "dropped 1"]);
}

#[test]
fn a_supervised_client_connects() {
    let output = script(
        "datagrams-client",
        "cat > echo.py <<'END'\n\
import socket\n\
s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('10.7.8.1', 9))\n\
while True: data, peer = s.recvfrom(9); s.sendto(data, peer)\n\
END\n\
         python3 echo.py & E=$!; await grep -q ':0009 00000000' /proc/net/udp\n\
         ${RUN%--}--supervise -- python3 -c 'import socket\n\
for n in range(2):\n  \
  s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(20)\n  \
  if n: s.bind((\"\", 99))\n  \
  s.connect((\"10.7.8.1\", 9)); s.send(b\"hello\"); print(s.recv(9), s.getsockname()[0], s.getpeername(), flush=True)'\n\
         kill $E",
    );
    says(
        output,
        &[
            "b'hello' 10.7.8.2 ('10.7.8.1', 9)",
            "b'hello' 0.0.0.0 ('10.7.8.1', 9)",
        ],
    );
}

/// As it is started everywhere: it goes into the background, and its configuration says no interface.
#[test]
fn dnsmasq_serves_from_the_background() {
    if Command::new("dnsmasq").arg("-v").output().is_err() {
        return skipped_here("no dnsmasq");
    }
    let output = script(
        "datagrams-dnsmasq",
        "cat > ask.py <<'END'\n\
import socket, struct, time\n\
def asked(n):\n  \
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect(('10.7.8.2', 53))\n  \
  try: s.send(struct.pack('!6H', n, 0x100, 1, 0, 0, 0) + b'\\1x\\4test\\0\\0\\1\\0\\1'); a = s.recv(999); return a[:2] == struct.pack('!H', n) and a.endswith(bytes([1, 2, 3, 4]))\n  \
  except OSError: return False\n\
end = time.monotonic() + 20\n\
while not asked(0) and time.monotonic() < end: time.sleep(0.05)\n\
right = sum(asked(n) for n in range(50)); print('names', 'right' if right > 45 else right)\n\
END\n\
         ${RUN%--}--supervise -- dnsmasq -C /dev/null --address=/x.test/1.2.3.4 --no-resolv --no-hosts --user=root --pid-file=$PWD/pid & S=$!\n\
         python3 ask.py; [ $(cut -d' ' -f4 /proc/$(cat pid)/stat) = $S ] && echo in the background; kill $(cat pid); wait $S; echo ended $?",
    );
    says(output, &["names right", "in the background", "ended 0"]);
}

/// Each datagram's child is a process of its own.
#[test]
fn socats_children_serve() {
    if Command::new("socat").arg("-V").output().is_err() {
        return skipped_here("no socat");
    }
    let output = script(
        "datagrams-socat",
        "$RUN socat UDP4-RECVFROM:9,fork PIPE & S=$!\n\
         cat > ask.py <<'END'\n\
import socket, time\n\
def asked(n):\n  \
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect(('10.7.8.2', 9))\n  \
  try: s.send(b'%d' % n); return s.recv(99) == b'%d' % n\n  \
  except OSError: return False\n\
end = time.monotonic() + 20\n\
while not asked(0) and time.monotonic() < end: time.sleep(0.05)\n\
right = sum(asked(n) for n in range(30)); print('echoes', 'right' if right > 27 else right)\n\
END\n\
         python3 ask.py; kill $S; wait $S",
    );
    says(output, &["echoes right"]);
}
