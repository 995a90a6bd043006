//! Forked children on a daemon that make sockets of their own: each has a lease, beside what it has of its parent's.

use std::process::Command;

use super::{
    handed::{says, script},
    keeping::{On, on_daemon, on_own_link},
    skipped_here,
};

/// What children ask of the kernel's echo server, each way.
const ASK: &str = "\
cat > asking.py <<'END'\n\
import encodings.idna, os, select, socket, sys\n\
def ask():\n  \
  s = socket.create_connection(('10.7.8.1', 7), 20); own = s.getsockname()[0]; s.sendall(b'hello'); return own, s.recv(9)\n\
def watch():\n  \
  e = select.epoll(); s = socket.socket(); s.setblocking(False); e.register(s, select.EPOLLOUT | select.EPOLLET)\n  \
  try: s.connect(('10.7.8.1', 7))\n  \
  except BlockingIOError: pass\n  \
  while not e.poll(20)[0][1] & select.EPOLLOUT: pass\n  \
  s.send(b'watched'); e.modify(s, select.EPOLLIN)\n  \
  while not e.poll(20)[0][1] & select.EPOLLIN: pass\n  \
  return s.getsockname()[0], s.recv(9), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)\n\
def say(*what): print(*what, file=sys.stderr, flush=True)\n\
END\n";

/// A child connects, watches, listens and has datagrams by a lease of its own; what it inherited is its parent's, used or not; and so it is with its own child.
#[test]
fn a_child_has_a_lease_of_its_own() {
    own_leases(on_daemon, "children-lease");
}

/// So it is where the program has the link: it lends it to its children.
#[test]
fn a_program_lends_its_link_to_its_children() {
    own_leases(on_own_link, "children-lent");
}

fn own_leases(on: On, name: &str) {
    let output = on(
        name,
        &format!(
            "{ASK}cat > server.py <<'END'\n\
import os, socket, sys\n\
from asking import ask, say, watch\n\
def answer(l, text):\n  \
  s, _ = l.accept(); s.sendall(text); s.close()\n\
def echo(u, text):\n  \
  data, peer = u.recvfrom(9); u.sendto(text + data, peer)\n\
l = socket.create_server(('0.0.0.0', 8)); kept, _ = l.accept(); unused = socket.create_connection(('10.7.8.1', 7), 20)\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('0.0.0.0', 9))\n\
early = socket.socket(); early.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); twice = early.dup()\n\
def meets():\n  \
  early.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); early.connect(('10.7.8.1', 7)); twice.sendall(b'early')\n  \
  options = (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY)\n  \
  return twice.getsockname()[0], early.recv(9), [early.getsockopt(*option) for option in options]\n\
if os.fork() == 0:\n  \
  say('in the child', *meets())\n  \
  say('child', *ask(), *watch(), unused.getsockname()[0])\n  \
  own = socket.create_server(('0.0.0.0', 10)); d = socket.socket(type=socket.SOCK_DGRAM); d.bind(('0.0.0.0', 11))\n  \
  kept.sendall(b'child ' + kept.recv(9)); answer(l, b'child'); echo(u, b'parents '); echo(d, b'own ')\n  \
  if os.fork() == 0:\n    \
    say('grandchild', *ask(), *watch()); answer(own, b'grandchild'); answer(l, b'grandchild')\n    \
    s, _ = own.accept(); s.sendall(b'x' * 3000000); os._exit(0)\n  \
  os.wait(); answer(own, b'child'); s, _ = own.accept(); s.sendall(b'y' * 3000000); os._exit(0)\n\
os.wait(); say('in the parent', *meets()); unused.sendall(b'unused'); say('parent', *ask(), unused.recv(9)); answer(l, b'parent')\n\
END\n\
         cat > client.py <<'END'\n\
import socket, sys\n\
from reached import reached\n\
def all(s):\n  \
  n = 0\n  \
  while data := s.recv(1 << 16): n += len(data)\n  \
  return n\n\
kept = reached(8); kept.sendall(b'text'); print(kept.recv(99), reached(8).recv(99))\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.settimeout(20)\n\
for port in 9, 11: u.sendto(b'text', ('10.7.8.2', port)); print(u.recv(99))\n\
print(reached(10).recv(99), reached(8).recv(99)); last = reached(10); sys.stdin.readline(); print(all(last), reached(10).recv(99), all(reached(10)))\n\
print(reached(8).recv(99))\n\
END\n"
        ),
        "mkfifo go; $ON python3 server.py 2> said & S=$!\n\
         python3 client.py < go > answers & C=$!\n\
         exec 5> go; await stacks 3 && echo three stacks; echo >&5\n\
         wait $C; wait $S; echo ended: $?; cat said answers; await stacks 0 && echo none is left; cat log",
    );
    says(
        output,
        &[
            "child 10.7.8.2 b'hello' 10.7.8.2 b'watched' 0 10.7.8.2",
            "in the child 10.7.8.2 b'early' [1, 1]",
            "in the parent 10.7.8.2 b'early' [1, 1]",
            "grandchild 10.7.8.2 b'hello' 10.7.8.2 b'watched' 0",
            "parent 10.7.8.2 b'hello' b'unused'",
            "b'child text' b'child'",
            "b'parents text'",
            "b'own text'",
            "b'grandchild' b'grandchild'",
            "3000000 b'child' 3000000",
            "b'parent'",
            "three stacks",
            "ended: 0",
            "none is left",
        ],
    );
}

/// Parent, child and grandchild reach each other by 127.0.0.1, ::1 and the link's address, with a link and without one.
#[test]
fn processes_of_a_program_reach_each_other() {
    let output = script(
        "children-loopback",
        "cat > each.py <<'END'\n\
import hashlib, os, select, socket, sys, threading\n\
DATA = os.urandom(1 << 16) * 48; SUM = hashlib.sha256(DATA).digest()\n\
def all(s):\n  \
  h, n = hashlib.sha256(), 0\n  \
  while n < len(DATA): part = s.recv(1 << 16); n += len(part); h.update(part)\n  \
  return h.digest() == SUM\n\
def both(s):\n  \
  t = threading.Thread(target=s.sendall, args=(DATA,)); t.start(); same = all(s); t.join(); return same\n\
def dial(port, hosts): return [both(socket.create_connection((host, port), 20)) for host in hosts]\n\
def take(l, hosts): return [both(l.accept()[0]) for _ in hosts]\n\
def listen(port):\n  \
  l = socket.socket(socket.AF_INET6); l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); l.bind(('::', port)); l.listen(); return l\n\
def datagram(port, hosts):\n  \
  for host in hosts:\n    \
    u = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20)\n    \
    u.sendto(DATA[:30000], (host, port)); yield u.recv(40000) == DATA[:30000]\n\
def echo(port, hosts):\n  \
  u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.bind(('::', port))\n  \
  def run():\n    \
    for _ in hosts: data, peer = u.recvfrom(40000); u.sendto(data, peer)\n  \
  t = threading.Thread(target=run); t.start(); return t\n\
def piped():\n  \
  r, w = os.pipe(); return lambda: os.write(w, b'x'), lambda: os.read(r, 1)\n\
hosts = sys.argv[1:]; say = lambda *what: print(*what, file=sys.stderr, flush=True)\n\
l = listen(8); e = echo(9, hosts); up, is_up = piped(); last, is_last = piped()\n\
if os.fork() == 0:\n  \
  say('child to parent', *dial(8, hosts), *datagram(9, hosts)); own = listen(10); f = echo(11, hosts); up()\n  \
  if os.fork() == 0: say('grandchild', *dial(10, hosts), *datagram(11, hosts), *dial(8, hosts)); last(); os._exit(0)\n  \
  take(own, hosts); take(own, hosts); f.join(); os.wait(); os._exit(0)\n\
take(l, hosts); e.join(); is_up(); take(l, hosts); is_last(); say('parent to child', *dial(10, hosts)); os.wait()\n\
try: socket.create_connection(('10.9.9.9', 9), 2); say('connected')\n\
except OSError as e: say('nothing else')\n\
END\n\
         timeout 60 $netchan run --loopback -- python3 each.py 127.0.0.1 127.8.9.1 ::1; echo alone: $?\n\
         ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
         timeout 60 $netchan run --link tap:nc8,peer=10.7.8.1/24 --loopback --address 10.7.8.2/24 -- python3 each.py 127.0.0.1 ::1 10.7.8.2; echo with a link: $?",
    );
    let all = |count| vec!["True"; count].join(" ");
    let (child, grandchild, parent) = (
        format!("child to parent {}", all(6)),
        format!("grandchild {}", all(9)),
        format!("parent to child {}", all(3)),
    );
    if let Some(output) = &output {
        for said in [&child, &grandchild, &parent] {
            assert_eq!(output.matches(said.as_str()).count(), 2, "{said}: {output}");
        }
    }
    says(output, &["alone: 0", "with a link: 0"]);
}

/// A child keeps the lease of a program that ends: the link is a keeper's from then on, which lends it to one more, and goes with the last of them.
#[test]
fn leases_of_a_program_that_ends_go_on() {
    let output = on_own_link(
        "children-kept",
        &format!(
            "{ASK}cat > server.py <<'END'\n\
import os, socket, sys, time\n\
from asking import ask, say\n\
l = socket.create_server(('0.0.0.0', 8))\n\
if os.fork() > 0: l.accept()[0].sendall(b'parent'); os._exit(3)\n\
own = socket.create_server(('0.0.0.0', 10)); kept, _ = own.accept()\n\
kept.sendall(b'before ' + kept.recv(9)); kept.sendall(b'after ' + kept.recv(9)); say('child', *ask())\n\
if os.fork() == 0: say('grandchild', *ask()); own.accept()[0].sendall(b'grandchild'); os._exit(0)\n\
os.wait(); own.accept()[0].sendall(b'child')\n\
END\n\
cat > client.py <<'END'\n\
import sys\n\
from reached import reached\n\
kept = reached(10); kept.sendall(b'one'); print(kept.recv(99), reached(8).recv(99), flush=True); sys.stdin.readline()\n\
kept.sendall(b'two'); print(kept.recv(99), reached(10).recv(99), reached(10).recv(99))\n\
END\n"
        ),
        "mkfifo go; $ON python3 server.py 2> said & S=$!\n\
         python3 client.py < go & C=$!; exec 5> go\n\
         wait $S; echo ended: $?; echo >&5\n\
         wait $C; await stacks 0 && echo none is left; cat said",
    );
    says(
        output,
        &[
            "b'before one' b'parent'",
            "ended: 3",
            "b'after two' b'grandchild' b'child'",
            "child 10.7.8.2 b'hello'",
            "grandchild 10.7.8.2 b'hello'",
            "none is left",
        ],
    );
}

/// The workers of servers that ask others: to these they come from netchan's address.
fn proxy(on: On, name: &str, server: &str, config: &str) {
    if Command::new(server).arg("-v").output().is_err() {
        return skipped_here(&format!("no {server}"));
    }
    let run = match server {
        "nginx" => "nginx -p $PWD -c proxy.cfg -g 'daemon off;'",
        _ => "haproxy -W -f proxy.cfg",
    };
    let output = on(
        name,
        &format!(
            "cat > backend.py <<'END'\n\
import http.server\n\
class Handler(http.server.BaseHTTPRequestHandler):\n  \
  def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'asked by ' + self.client_address[0].encode())\n\
http.server.ThreadingHTTPServer(('', 81), Handler).serve_forever()\n\
END\n\
             cat > proxy.cfg <<'END'\n{config}END\n"
        ),
        &format!(
            "python3 backend.py 2> backend.log & B=$!\n\
             await curl -sf --max-time 2 http://127.0.0.1:81/ > first\n\
             $ON {run} 2> proxy.log & S=$!\n\
             await curl -sf --max-time 2 http://10.7.8.2:8/\n\
             for i in $(seq 20); do curl -s --max-time 5 http://10.7.8.2:8/; echo; done | sort | uniq -c\n\
             kill $S; wait $S; echo ended: $?; kill $B; cat proxy.log log"
        ),
    );
    says(output, &["20 asked by 10.7.8.2", "ended: 0"]);
}

const NGINX: &str = "worker_processes 2; error_log stderr; pid nginx.pid;\n\
events {}\n\
http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
server { listen 8; location / { proxy_pass http://10.7.8.1:81; } } }\n";

#[test]
fn nginxs_workers_ask_by_their_own() {
    proxy(on_daemon, "children-nginx", "nginx", NGINX);
}

#[test]
fn nginxs_workers_ask_by_its_own_link() {
    proxy(on_own_link, "children-nginx-link", "nginx", NGINX);
}

#[test]
fn haproxys_worker_asks_by_its_own() {
    proxy(
        on_daemon,
        "children-haproxy",
        "haproxy",
        "defaults\n mode http\n timeout connect 2s\n timeout client 2s\n timeout server 2s\n\
frontend f\n bind 0.0.0.0:8\n default_backend b\n\
backend b\n server s 10.7.8.1:81\n",
    );
}

/// A child that cannot reach the daemon any more says so, and has the kernel's stack as before.
#[test]
fn a_child_without_a_lease_says_so() {
    let output = on_daemon(
        "children-without",
        &format!(
            "{ASK}cat > server.py <<'END'\n\
import os, socket, sys\n\
from asking import ask, say\n\
l = socket.create_server(('0.0.0.0', 8))\n\
if os.fork() == 0:\n  \
  os.mkdir('empty'); os.chroot('empty'); say('child', *ask(), *ask()); s, _ = l.accept(); s.sendall(b'accepted'); os._exit(0)\n\
os.wait(); say('parent', *ask())\n\
END\n"
        ),
        "$ON python3 server.py 2> said & S=$!\n\
         python3 -c 'from reached import reached; print(reached(8).recv(99))'; wait $S; echo ended: $?; cat said log; echo times: $(grep -c 'has no lease' said)",
    );
    says(
        output,
        &[
            "has no lease, and uses the kernel's stack",
            "child 10.7.8.1 b'hello' 10.7.8.1 b'hello'",
            "parent 10.7.8.2 b'hello'",
            "b'accepted'",
            "ended: 0",
            "times: 1",
        ],
    );
}

/// Without a daemon: the run lends its links itself, to the program, to what it forks and to what it starts, and ends with the last of them, as the program has
/// ended.
#[test]
fn a_shared_run_lends_its_links() {
    let output = script(
        "children-shared",
        &format!(
            "{ASK}cat > server.py <<'END'\n\
import os, signal, socket, subprocess, sys, time\n\
from asking import ask, say, watch\n\
l = socket.create_server(('0.0.0.0', 8))\n\
started = subprocess.Popen([sys.executable, '-c', 'import socket; from asking import *; l = socket.create_server((\"0.0.0.0\", 10)); say(\"started\", *ask()); l.accept()[0].sendall(b\"started\")'])\n\
if os.fork() == 0:\n  \
  say('child', *ask(), *watch()); l.accept()[0].sendall(b'child'); time.sleep(1); say('last', *ask()); os._exit(3)\n\
say('parent', *ask()); started.wait(); say('waits'); signal.pause()\n\
END\n\
             cat > client.py <<'END'\n\
import socket, time\n\
def reached_at(host, port):\n  \
  for n in range(400):\n    \
    try: return socket.create_connection((host, port), 20)\n    \
    except OSError: time.sleep(0.05)\n\
def reached(port): return reached_at('10.7.8.2', port)\n\
if __name__ == '__main__': print(reached(10).recv(9), reached(8).recv(9))\n\
END\n\
             cat > beside.py <<'END'\n\
import socket, sys\n\
from client import reached_at\n\
if sys.argv[1] == 'listen': socket.create_server(('127.0.0.1', 8)).accept()[0].sendall(b'beside')\n\
else: s = reached_at('127.0.0.1', 8); print('by itself:', s.recv(9), s.getpeername(), '0100007F:0008' in open('/proc/net/tcp').read())\n\
END\n\
             ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
             TMPDIR=$PWD $netchan run --shared --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 -- python3 server.py 2> said & S=$!\n\
             python3 client.py; await grep -q waits said; $netchan show leases | grep -c 'python3 (pid\\|server.py'; kill $S; wait $S; echo ended: $?; cat said\n\
             $netchan run --shared --link tap:nc8 --address 10.7.8.2/24 -- python3 -c 'import sys; sys.exit(7)'; echo exit: $?\n\
             chmod 755 .; $netchan run --shared --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --user nobody --sandbox -- /usr/bin/python3 ask.py ask\n\
             $netchan run --shared --loopback -- sh -c 'python3 beside.py listen & python3 beside.py ask; wait'; echo alone: $?; ls -d netchan-run* 2>/dev/null || echo no directory is left"
        ),
    );
    says(
        output,
        &[
            "b'started' b'child'",
            "started 10.7.8.2 b'hello'",
            "child 10.7.8.2 b'hello' 10.7.8.2 b'watched' 0",
            "parent 10.7.8.2 b'hello'",
            "last 10.7.8.2 b'hello'",
            "ended: 143",
            "exit: 7",
            "uid 65534 from 10.7.8.2 b'hello'",
            "by itself: b'beside' ('127.0.0.1', 8) False",
            "alone: 0",
            "no directory is left",
        ],
    );
}

/// A program that serves two connections by epoll(7), level-triggered, hears of them in the order in which another one wrote to them, though it had heard of the other one
/// first the last time: nearly always, a kernel's loopback in five of six. (redis's own tests count on it.)
#[test]
fn what_another_program_wrote_first_is_reported_first() {
    let output = script(
        "children-order",
        "cat > server.py <<'END'\n\
import select, socket\n\
l = socket.create_server(('127.0.0.1', 8)); all = {}; first = late = last = 0\n\
watch = select.epoll(); watch.register(l, 1)\n\
while last < 500:\n  \
  for fd, _ in watch.poll():\n    \
    if fd == l.fileno():\n      \
      s = l.accept()[0]; s.setsockopt(6, 1, 1); watch.register(s, 1); all[s.fileno()] = s; continue\n    \
    text = all[fd].recv(100)\n    \
    if text == b'ping': all[fd].sendall(b'pong')\n    \
    elif text[:1] == b'a': first = int(text[1:])\n    \
    elif text: last = int(text[1:]); late += first != last; all[fd].sendall(b'done')\n\
print('few are late:', late <= 25)\n\
END\n\
             cat > client.py <<'END'\n\
import socket, time\n\
def reached():\n  \
  for n in range(400):\n    \
    try: s = socket.create_connection(('127.0.0.1', 8), 20); break\n    \
    except OSError: time.sleep(0.05)\n  \
  s.setsockopt(6, 1, 1)\n  \
  for n in range(20): s.sendall(b'ping'); assert s.recv(9) == b'pong'\n  \
  return s\n\
b = reached(); a = reached()\n\
for n in range(1, 501): a.sendall(b'a%d' % n); b.sendall(b'b%d' % n); assert b.recv(9) == b'done'\n\
END\n\
             $netchan run --shared --loopback -- sh -c 'python3 server.py & python3 client.py; wait'; echo status: $?",
    );
    says(output, &["few are late: True", "status: 0"]);
}

/// Programs that a shell starts beside each other, which has no stack itself: the first has the links, also where several begin at once, and another one when that
/// has ended.
#[test]
fn programs_of_a_shell_reach_each_other() {
    let output = script(
        "children-shell",
        "cat > beside.py <<'END'\n\
import socket, sys, time\n\
def reached(host, port):\n  \
  for n in range(400):\n    \
    try: return socket.create_connection((host, port), 20)\n    \
    except OSError: time.sleep(0.05)\n\
how, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])\n\
if how == 'listen': socket.create_server((host, port)).accept()[0].sendall(b'beside')\n\
else: s = reached(host, port); print(f\"heard: {s.recv(9)} {s.getpeername()[0]} {':%04X' % port in open('/proc/net/tcp').read()}\", flush=True)\n\
END\n\
         cat > all.sh <<'END'\n\
for n in 1 2 3 4; do python3 beside.py listen $1 4000$n & done; for n in 1 2 3 4; do python3 beside.py ask $1 4000$n & done; wait\n\
python3 beside.py listen $1 40005 & python3 beside.py ask $1 40005; wait\n\
END\n\
         for n in 1 2 3; do timeout 60 $netchan run -q --loopback -- sh all.sh 127.0.0.1; done; echo loopback: $?\n\
         for n in 1 2 3; do timeout 60 $RUN sh all.sh 10.7.8.2; done; echo link: $?",
    );
    let Some(text) = &output else { return };
    for host in ["127.0.0.1", "10.7.8.2"] {
        let heard = format!("heard: b'beside' {host} False");
        assert_eq!(text.matches(&heard).count(), 15, "{text}");
    }
    says(output, &["loopback: 0", "link: 0"]);
}
