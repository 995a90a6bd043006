//! Programs that make their system calls themselves, and servers that go into the background: the stack is in another process, which the kernel asks.

use std::process::Command;

use super::{
    handed::{says, script},
    skipped_here,
};

/// A program of `netchan run` whose calls are answered from outside.
const SUPERVISE: &str = "$netchan run --supervise --link tap:nc8 --address 10.7.8.2/24 --";

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("version").output();
    asked.is_ok()
}

/// The checks of the preload library's tests, in a statically linked program: what it asks of the kernel's sockets holds of these. `groups` are those of
/// which UNIX sockets answer all as TCP does.
#[test]
fn a_static_program_has_the_kernels_calls() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload/tests/c");
    let output = script(
        "supervised-static",
        &format!(
            "for f in '{sources}'/*.c; do case ${{f##*/}} in peer.c|count.c|sweep.c|states.c|*sequence*) ;; *) set -- \"$@\" $f;; esac; done\n\
             cc -static -O1 -w -o calls \"$@\" -lpthread ; cc -O1 -w -o peer '{sources}'/peer.c -lpthread\n\
             ./peer 10.7.8.1 > up & P=$!; await grep -q ready up\n\
             $RUN ./calls 10.7.8.1 kernel waiting descriptors ends threads processes signals numbers; echo ended $?; kill $P"
        ),
    );
    says(output, &["all right\nended 0"]);
}

/// What stands in the middle: options ahead of bind, names, errors of a connect that does not wait, what stays with the kernel, and bad pointers.
#[test]
fn calls_mean_what_the_kernels_mean() {
    let output = script(
        "supervised",
        &format!(
            "cat > calls.py <<'END'\n\
import ctypes, errno, os, select, signal, socket\n\
S, O = socket.SOL_SOCKET, socket.SO_REUSEADDR\n\
a = socket.socket(); a.setsockopt(S, O, 1); a.bind(('0.0.0.0', 8)); a.listen(5)\n\
print('bound', a.getsockname(), a.getsockopt(S, O), a.getsockopt(S, socket.SO_ACCEPTCONN), a.getsockopt(S, socket.SO_DOMAIN) == socket.AF_INET)\n\
def fails(what, *arguments):\n  \
  try: print('no error', what(*arguments))\n  \
  except OSError as e: return errno.errorcode[e.errno]\n\
b = socket.socket(); b.setsockopt(S, O, 1); print('again', fails(b.bind, ('0.0.0.0', 8)), fails(b.getpeername)); b.bind(('0.0.0.0', 11)); print('kept', b.getsockopt(S, O)); b.close()\n\
e = socket.socket(); e.setblocking(False); fails(e.connect, ('10.7.8.1', 6)); p = select.poll(); p.register(e, select.POLLOUT); p.poll(5000); print('told', fails(e.connect, ('10.7.8.1', 6)))\n\
f = socket.socket(); f.settimeout(None); f.setsockopt(S, socket.SO_RCVTIMEO, bytes([0] * 8 + [160, 134, 1] + [0] * 5)); f.connect(('10.7.8.1', 7)); print('late', fails(f.recv, 1))\n\
c = socket.socket(); c.setblocking(False); print('connect', fails(c.connect, ('10.7.8.1', 6)))\n\
p = select.poll(); p.register(c, select.POLLOUT); p.poll(5000); print('refused', errno.errorcode[c.getsockopt(S, socket.SO_ERROR)], c.getsockopt(S, socket.SO_ERROR))\n\
d = socket.socket(); d.setblocking(False); print('connect', fails(d.connect, ('10.7.8.1', 7)))\n\
g = socket.socket(); g.setblocking(False); print('silent', fails(g.connect, ('10.7.8.9', 7)), fails(g.send, b'early')); g.close()\n\
p = select.poll(); p.register(d, select.POLLOUT); p.poll(5000); print('connected', d.getsockopt(S, socket.SO_ERROR), d.getpeername(), fails(d.connect, ('10.7.8.1', 7)))\n\
d.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); print('nodelay', d.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), len(d.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)))\n\
d.setblocking(True); d.sendall(b'ok'); print('echo', d.recv(9)); d.shutdown(socket.SHUT_WR); print('end', d.recv(9))\n\
print('refused', fails(socket.socket().connect, ('10.7.8.1', 6)))\n\
libc = ctypes.CDLL(None, use_errno=True); bad = ctypes.c_void_p(1); fresh = socket.socket()\n\
for call in (lambda: libc.getsockname(a.fileno(), bad, bad), lambda: libc.getsockname(a.fileno(), None, ctypes.byref(ctypes.c_int(16))), lambda: libc.bind(fresh.fileno(), bad, 16), lambda: libc.setsockopt(a.fileno(), 1, 2, bad, 4), lambda: libc.accept4(a.fileno(), None, None, 1 << 30), lambda: libc.getsockopt(a.fileno(), 1, 2, ctypes.byref(ctypes.c_int()), ctypes.byref(ctypes.c_int(-1)))):\n  \
  print('bad', call(), errno.errorcode[ctypes.get_errno()])\n\
k = socket.create_server(('127.0.0.1', 9)); j = socket.create_connection(('127.0.0.1', 9)); print('kernel', j.getpeername())\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('127.0.0.1', 9)); print('datagrams', u.getsockname())\n\
signal.signal(signal.SIGALRM, lambda *_: 1/0); signal.alarm(1)\n\
try: a.accept()\n\
except ZeroDivisionError: print('interrupted')\n\
def often(*_):\n  \
  global left; left -= 1\n  \
  if left == 0: raise KeyError\n\
left = 300; signal.signal(signal.SIGALRM, often); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
try: a.accept()\n\
except KeyError: print('often')\n\
signal.setitimer(signal.ITIMER_REAL, 0)\n\
print('waits', flush=True)\n\
if (child := os.fork()) == 0:\n  \
  s, peer = a.accept(); s.sendall(b'from the child'); os._exit(0)\n\
os.waitpid(child, 0); a.setblocking(False); print('none', fails(a.accept)); os._exit(7)\n\
END\n\
             {SUPERVISE} python3 calls.py > said & S=$!; await grep -q waits said\n\
             python3 -c 'import socket; s = socket.create_connection((\"10.7.8.2\", 8)); print(\"heard\", s.recv(99), s.recv(9))'\n\
             wait $S; echo ended $?; cat said"
        ),
    );
    says(
        output,
        &[
            "heard b'from the child' b''",
            "ended 7",
            "bound ('0.0.0.0', 8) 1 1 True",
            "again EADDRINUSE ENOTCONN\nkept 1\ntold ECONNREFUSED\nlate EAGAIN",
            "connect EINPROGRESS\nrefused ECONNREFUSED 0",
            "connect EINPROGRESS\nsilent EINPROGRESS EAGAIN\nconnected 0 ('10.7.8.1', 7) EISCONN",
            "nodelay 1 104",
            "echo b'ok'\nend b''\nrefused ECONNREFUSED",
            "bad -1 EFAULT\nbad -1 EFAULT\nbad -1 EFAULT\nbad -1 EFAULT\nbad -1 EINVAL\nbad -1 EINVAL\n",
            "kernel ('127.0.0.1', 9)\ndatagrams ('127.0.0.1', 9)\ninterrupted\noften",
            "none EAGAIN",
        ],
    );
}

/// The kernel has no address here: what there is to see, and to go from, is the stack's. Alone the same is seen.
#[test]
fn the_stacks_addresses_are_seen() {
    let output = script(
        "supervised-seen",
        &format!(
            "cat > seen.py <<'END'\n\
import socket, struct\n\
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(20)\n\
s.send(struct.pack('=IHHIIB7x', 24, 22, 0x301, 1, 0, socket.AF_INET))\n\
done = False\n\
while not done:\n  \
  part = s.recv(65536)\n  \
  while part:\n    \
    n, kind = struct.unpack_from('=IH', part); done |= kind == 3\n    \
    if kind == 20 and socket.inet_aton('10.7.8.2') in part[:n]: print('listed')\n    \
    part = part[n + 3 & ~3:]\n\
print(socket.getaddrinfo('10.7.8.1', 80, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)[0][4], flush=True)\n\
END\n\
             ip addr flush dev nc8; $RUN python3 seen.py; {SUPERVISE} python3 seen.py"
        ),
    );
    let said = "listed\n('10.7.8.1', 80)\n";
    says(output, &[&format!("{said}{said}")]);
}

/// What a program writes the moment it can is what its peer reads, each time.
#[test]
fn the_first_words_of_a_connection_arrive() {
    let output = script(
        "supervised-first",
        &format!(
            "cat > first.py <<'END'\n\
import select, socket\n\
right = 0\n\
for n in range(400):\n  \
  s = socket.socket(); s.setblocking(False); s.connect_ex(('10.7.8.1', 7))\n  \
  p = select.poll(); p.register(s, select.POLLOUT); p.poll(20000); s.send(b'%03d' % n)\n  \
  p.modify(s, select.POLLIN); right += bool(p.poll(3000)) and s.recv(9) == b'%03d' % n\n  \
  s.close()\n  \
  if right <= n: break\n\
print('right', right)\n\
END\n\
             {SUPERVISE} python3 first.py"
        ),
    );
    says(output, &["right 400"]);
}

/// The program ends, and what it has left serves on, until that is asked to end through `netchan run`. Nothing of it is left then.
#[test]
fn a_server_goes_into_the_background() {
    let output = script(
        "supervised-background",
        &format!(
            "cat > daemon.py <<'END'\n\
import os, signal, socket, sys\n\
listener = socket.create_server(('0.0.0.0', 8))\n\
if os.fork(): sys.exit(3)\n\
os.setsid()\n\
def end(*_): print('asked to end', flush=True); os._exit(0)\n\
signal.signal(signal.SIGTERM, end)\n\
while True:\n  \
  stream, peer = listener.accept()\n  \
  if os.fork() == 0: stream.sendall(stream.recv(99)); os._exit(0)\n  \
  stream.close()\n\
END\n\
             cat > try.py <<'END'\n\
import socket\n\
s = socket.create_connection(('10.7.8.2', 8), 5); s.sendall(b'x' * 9); assert s.recv(99) == b'x' * 9 and s.recv(9) == b''; print('served')\n\
END\n\
             {SUPERVISE} python3 daemon.py > said & S=$!; await python3 try.py; for i in 1 2 3 4 5 6 7 8; do python3 try.py & Q=\"$Q $!\"; done; wait $Q\n\
             $netchan show sockets --pid $S | grep -c LISTEN; kill $S; wait $S; echo ended $?; cat said\n\
             python3 try.py 2> /dev/null || echo gone"
        ),
    );
    let served = output.as_ref().map(|said| said.matches("served").count());
    assert!(served.is_none_or(|served| served == 8), "{output:?}");
    says(output, &["1\nended 3\nasked to end\ngone"]);
}

/// It serves with a child for each connection.
#[test]
fn busybox_serves_and_asks() {
    if !is_there("busybox") {
        return skipped_here("no busybox");
    }
    let output = script(
        "supervised-busybox",
        "head -c 3000000 /dev/urandom > body; fetch() { curl -s -m 20 http://10.7.8.2:8/body | cmp - body; }\n\
         $RUN busybox httpd -f -p 8 -h . & S=$!; await fetch; for i in 1 2 3 4; do (fetch && echo same) & Q=\"$Q $!\"; done; wait $Q\n\
         kill $S; wait $S; echo ended $?\n\
         python3 -m http.server -b 10.7.8.1 80 > /dev/null 2>&1 & H=$!; await grep -q ':0050 00000000:0000 0A' /proc/net/tcp\n\
         $RUN busybox wget -q -O got http://10.7.8.1/body; cmp got body && echo fetched; kill $H; wait $H",
    );
    let said = "same\nsame\nsame\nsame\nended 143\nfetched\n";
    says(output, &[said]);
}

/// A Go program, with the C library beside it and without: it makes its calls itself either way.
#[test]
fn go_serves_and_asks() {
    if !is_there("go") {
        return skipped_here("no go");
    }
    let output = script(
        "supervised-go",
        "cat > main.go <<'END'\n\
package main\n\
import (\"crypto/sha256\"; \"fmt\"; \"io\"; \"net/http\"; \"os\")\n\
func main() {\n\
  if len(os.Args) > 1 {\n\
    answer, err := http.Get(os.Args[1])\n\
    if err != nil { fmt.Println(\"no\", err); os.Exit(3) }\n\
    body, err := io.ReadAll(answer.Body)\n\
    fmt.Println(\"got\", len(body), err); return\n\
  }\n\
  http.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) { body, _ := io.ReadAll(r.Body); fmt.Fprintf(w, \"%x\", sha256.Sum256(body)) })\n\
  fmt.Println(http.ListenAndServe(\":8\", nil))\n\
}\n\
END\n\
         export GO111MODULE=off GOTOOLCHAIN=local; head -c 9000000 /dev/urandom > body; sum=$(sha256sum < body | cut -c1-64)\n\
         printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhello' > answer\n\
         for cgo in 0 1; do CGO_ENABLED=$cgo go build -o try main.go 2>&1\n\
         $RUN ./try > /dev/null 2>&1 & S=$!\n\
         ask() { [ \"$(curl -s -m 20 --data-binary @body http://10.7.8.2:8/)\" = $sum ]; }; await ask\n\
         for i in 1 2 3 4; do (ask && echo same) & Q=\"$Q $!\"; done; wait $Q; Q=; kill $S; wait $S; echo ended $?\n\
         python3 -m http.server -b 10.7.8.1 80 > /dev/null 2>&1 & H=$!; await grep -q ':0050 00000000:0000 0A' /proc/net/tcp\n\
         $RUN ./try http://10.7.8.1/answer 2> /dev/null; $RUN ./try http://10.7.8.1:6/ 2> /dev/null; kill $H; wait $H\n\
         done",
    );
    let said = "same\nsame\nsame\nsame\nended 143\ngot 24 <nil>\nno Get \"http://10.7.8.1:6/\": dial tcp 10.7.8.1:6: connect: connection refused\n";
    says(output, &[&format!("{said}{said}")]);
}

/// Rights are given up for the program alone: what answers its calls keeps those that it needs.
#[test]
fn a_supervised_program_is_confined() {
    let output = script(
        "supervised-confined",
        "chmod 755 .; for how in '' '--user nobody' '--sandbox --user nobody'; do\n\
         $netchan run --supervise $how --link tap:nc8 --address 10.7.8.2/24 -- /usr/bin/python3 ask.py ask; done\n\
         $netchan run --supervise --sandbox --link tap:nc8 --address 10.7.8.2/24 -- sh -c '(: > /etc/netchan-test) 2> /dev/null || echo kept out'",
    );
    let said = |uid| format!("uid {uid} from 10.7.8.2 b'hello'\n");
    let all = [said(0), said(65534), said(65534)].concat();
    says(output, &[&format!("{all}kept out")]);
}

/// Whatever a program passes, and however its calls end: what answers them stays, and serves the next one.
#[test]
fn a_storm_of_calls_does_no_harm() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/storm.c");
    let output = script(
        "supervised-storm",
        &format!(
            "cc -static -O1 -w -o storm '{source}'\n$RUN ./storm 10.7.8.1 3000; echo ended $?"
        ),
    );
    says(output, &["in good order\nended 0"]);
}

/// The same of a program that is linked to another C library.
#[test]
fn a_storm_of_musls_calls_does_no_harm() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/storm.c");
    if !is_there("musl-gcc") {
        return skipped_here("no musl-gcc");
    }
    let output = script(
        "supervised-musl",
        &format!(
            "musl-gcc -static -O1 -w -idirafter /usr/include -idirafter /usr/include/$(uname -m)-linux-gnu -o storm '{source}'\n\
             $RUN ./storm 10.7.8.1 500; echo ended $?"
        ),
    );
    says(output, &["in good order\nended 0"]);
}
