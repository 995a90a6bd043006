//! What other processes hold goes on where the process that has the stack ends, or becomes another program: connections from before, listeners, datagrams.

use std::process::Command;

use super::{
    handed::{says, script},
    skipped_here,
};

/// A server that goes into the background as its first argument says, with a connection that it had before. Its child waits until it has ended, and sets an option of
/// the datagram socket then. With `exec` the child becomes another program, whose new sockets are netchan's, too. It ends once it was asked three times.
const SERVER: &str = "\
cat > server.py <<'END'\n\
import os, select, socket, sys, threading, time\n\
if sys.argv[1] == 'executed':\n  \
  l, u, kept = (socket.socket(fileno=int(number)) for number in sys.argv[2:])\n  \
  print('own', socket.create_server(('10.7.8.2', 0)).getsockname()[0], file=sys.stderr)\n\
else:\n  \
  l = socket.create_server(('0.0.0.0', 8)); u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('0.0.0.0', 9))\n  \
  kept, _ = l.accept(); kept.sendall(b'parent ' + kept.recv(9)); parent = os.getpid()\n  \
  if sys.argv[1] == 'threads':\n    \
    o = socket.create_server(('0.0.0.0', 11)); e = select.epoll(); e.register(o, select.EPOLLIN)\n    \
    for wait in o.accept, e.poll, lambda: select.select([o], [], []): threading.Thread(target=wait, daemon=True).start()\n    \
    time.sleep(0.2)\n  \
  if os.fork():\n    \
    late = socket.create_server(('0.0.0.0', 10))\n    \
    if sys.argv[1] in ('_exit', 'threads'): os._exit(0)\n    \
    sys.exit(0)\n  \
  os.setsid()\n  \
  while os.getppid() == parent: time.sleep(0.01)\n  \
  u.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)\n  \
  if sys.argv[1] == 'exec':\n    \
    for s in l, u, kept: s.set_inheritable(True)\n    \
    os.execv(sys.executable, [sys.executable, 'server.py', 'executed', *(str(s.fileno()) for s in (l, u, kept))])\n\
for n in range(3):\n  \
  s, _ = l.accept(); s.sendall(b'child %d ' % n + s.recv(9)); s.close()\n\
while (got := u.recvfrom(9))[0] != b'over': u.sendto(b'datagram ' + got[0], got[1])\n\
text = b''\n\
while part := kept.recv(1 << 16): text += part\n\
kept.sendall(b'%d bytes' % len(text))\n\
END\n\
cat > ask.py <<'END'\n\
import socket, sys, time\n\
kept = socket.create_connection(('10.7.8.2', 8), 20); kept.sendall(b'one'); print(kept.recv(99), flush=True)\n\
sys.stdin.readline()\n\
for n in range(3):\n  \
  with socket.create_connection(('10.7.8.2', 8), 20) as s: s.sendall(b'two'); print(s.recv(99))\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.settimeout(20); u.setsockopt(socket.IPPROTO_IP, 12, 1)\n\
for n in range(200):\n  \
  u.sendto(b'three', ('10.7.8.2', 9)); data, told, _, _ = u.recvmsg(99, 99); ttl = int.from_bytes(told[0][2], 'little')\n  \
  if ttl == 33: break\n  \
  time.sleep(0.02)\n\
print(data, ttl); u.sendto(b'over', ('10.7.8.2', 9))\n\
kept.sendall(b'x' * 3000000); kept.shutdown(socket.SHUT_WR); print(kept.recv(99), kept.recv(99))\n\
END\n";

/// Runs it; a line each tells that the program has ended, that no stack is left after its child, and what was said.
fn background(name: &str, how: &str) {
    let output = script(
        name,
        &format!(
            "{SERVER}mkfifo go\n\
             $RUN python3 server.py {how} 2> log & S=$!\n\
             await sh -c \"$netchan show sockets 2>/dev/null | grep -q ':8 '\"\n\
             python3 ask.py < go > answers & A=$!\n\
             exec 5> go; wait $S; echo the program has ended: $?; echo >&5; wait $A; cat answers\n\
             none() {{ ! $netchan show sockets 2>/dev/null >&2; }}; await none && echo no stack is left\n\
             echo complaints: $(grep -c 'netchan: process' log); cat log"
        ),
    );
    says(
        output,
        &[
            "the program has ended: 0",
            "b'parent one'",
            "b'child 0 two'",
            "b'child 1 two'",
            "b'child 2 two'",
            "b'datagram three' 33",
            "b'3000000 bytes' b''",
            "no stack is left",
            "complaints: 0",
            if how == "exec" { "own 10.7.8.2" } else { "" },
        ],
    );
}

#[test]
fn a_server_goes_into_the_background() {
    background("kept-exit", "exit");
}

/// Without exit handlers.
#[test]
fn a_server_goes_into_the_background_by_bare_exit() {
    background("kept-_exit", "_exit");
}

/// Which wait for a listener, by three calls.
#[test]
fn a_server_goes_into_the_background_while_its_threads_wait() {
    background("kept-threads", "threads");
}

/// The link stays the keeper's.
#[test]
fn a_child_becomes_another_program_after_its_parents_end() {
    background("kept-child-exec", "exec");
}

/// No second stack comes to a link beside the keeper's, also where the link would let it: what a shell starts next has a lease of it.
#[test]
fn a_link_is_its_keepers() {
    let output = script(
        "kept-claim",
        "cat > server.py <<'END'\n\
import os, socket, sys\n\
l = socket.create_server(('0.0.0.0', int(sys.argv[1])))\n\
if sys.argv[1] == '9' or os.fork() == 0: l.accept()[0].sendall(sys.argv[1].encode())\n\
END\n\
         ip link add nc6 type veth peer name nc7; ip link set nc6 up; ip link set nc7 up; ip addr add 10.7.9.1/24 dev nc7\n\
         $netchan run --link packet:nc6 --address 10.7.9.2/24 -- sh -c 'python3 server.py 8; python3 server.py 9; echo second: $?' & S=$!\n\
         await sh -c \"$netchan show sockets 2>/dev/null | grep -q ':9 '\"; echo leases: $($netchan show leases | grep -c ' nc6 ')\n\
         for port in 9 8; do python3 -c \"import socket; print('port', socket.create_connection(('10.7.9.2', $port), 20).recv(9))\"; done; wait $S",
    );
    says(
        output,
        &["leases: 1", "port b'9'", "port b'8'", "second: 0"],
    );
}

/// A run waits for the TAP of what another one has left, and names the process that holds it for longer.
#[test]
fn a_taps_keeper_is_waited_for() {
    let output = script(
        "kept-tap",
        "cat > server.py <<'END'\n\
import os, socket, time\n\
l = socket.create_server(('0.0.0.0', 8))\n\
if os.fork() == 0: s, _ = l.accept(); time.sleep(0.3); s.sendall(b'served'); os._exit(0)\n\
END\n\
         mkfifo go; exec 5<> go; $RUN python3 server.py; $RUN python3 ask.py ask wait <&5 > asked & S=$!\n\
         python3 -c \"import socket; print(socket.create_connection(('10.7.8.2', 8), 20).recv(9))\"\n\
         await grep hello asked; $RUN true; echo busy: $?; echo >&5; wait $S; echo ended: $?; cat asked",
    );
    says(
        output,
        &[
            "b'served'",
            "uid 0 from 10.7.8.2 b'hello'",
            "(python3) holds it",
            "busy: 1",
            "ended: 0",
        ],
    );
}

/// Runs a script, after files were made; what it printed.
pub type On = fn(&str, &str, &str) -> Option<String>;

/// A daemon, and `netchan run` on it as `$ON`; `run` is what happens there. `reached` is python's for a connection that is tried until it is there.
pub fn on_daemon(name: &str, files: &str, run: &str) -> Option<String> {
    let starts = "$netchan daemon --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
         await grep -q lends log; ON=\"timeout 60 $netchan run --link daemon:$PWD/d --\"";
    on(
        name,
        files,
        starts,
        &format!("{run}; kill $daemon; wait $daemon"),
    )
}

/// The same where the program has the link for itself.
pub fn on_own_link(name: &str, files: &str, run: &str) -> Option<String> {
    let starts = "touch log; ON=\"timeout 60 $netchan run --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --\"";
    on(name, files, starts, run)
}

fn on(name: &str, files: &str, starts: &str, run: &str) -> Option<String> {
    let reached = "cat > reached.py <<'END'\n\
import socket, time\n\
def reached(port):\n  \
  for n in range(400):\n    \
    try: return socket.create_connection(('10.7.8.2', port), 20)\n    \
    except OSError: time.sleep(0.05)\n\
END\n";
    script(
        name,
        &format!(
            "{files}{reached}\
             ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
             {starts}\n\
             stacks() {{ [ $($netchan show leases | grep -c server.py) = $1 ]; }}\n\
             {run}"
        ),
    )
}

/// A program that becomes another one keeps what stays open, and the new one has a lease of its own beside it. An exec that fails changes nothing.
#[test]
fn a_program_on_a_daemon_becomes_another_one() {
    becomes_another(on_daemon, "");
}

#[test]
fn a_program_on_a_link_of_its_own_becomes_another_one() {
    becomes_another(on_own_link, "-link");
}

fn becomes_another(on: On, place: &str) {
    let output = on(
        &format!("kept-exec{place}"),
        "cat > server.py <<'END'\n\
import os, socket, sys\n\
if sys.argv[1] == 'first':\n  \
  l = socket.create_server(('0.0.0.0', 8)); u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('0.0.0.0', 9))\n  \
  kept, _ = l.accept(); kept.sendall(b'first ' + kept.recv(9))\n  \
  try: os.execv('/nonexistent', ['x'])\n  \
  except OSError: kept.sendall(b'still ' + kept.recv(9))\n  \
  for s in l, u, kept: s.set_inheritable(True)\n  \
  os.execv(sys.executable, [sys.executable, 'server.py', 'second', *(str(s.fileno()) for s in (l, u, kept))])\n\
l, u, kept = (socket.socket(fileno=int(number)) for number in sys.argv[2:])\n\
print('names', l.getsockname(), kept.getsockname(), flush=True)\n\
kept.sendall(b'second ' + kept.recv(9))\n\
s, _ = l.accept(); s.sendall(b'new ' + s.recv(9)); s.close()\n\
data, peer = u.recvfrom(9); u.sendto(b'datagram ' + data, peer)\n\
own = socket.create_server(('0.0.0.0', 10)); s, _ = own.accept(); s.sendall(b'own ' + s.recv(9)); s.recv(9); s.close()\n\
END\n\
         cat > ask.py <<'END'\n\
import socket, sys\n\
from reached import reached\n\
def asked(s): s.sendall(b'text'); return s.recv(99)\n\
kept = reached(8); print(asked(kept), asked(kept), asked(kept), asked(reached(8)))\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.settimeout(20); u.sendto(b'text', ('10.7.8.2', 9)); print(u.recv(99))\n\
own = reached(10); print(asked(own), flush=True); sys.stdin.readline(); own.close(); print(kept.recv(99))\n\
END\n",
        "mkfifo go; $ON python3 server.py first & S=$!\n\
         python3 ask.py < go > answers & A=$!\n\
         exec 5> go; await grep -q own answers; await stacks 2 && echo two leases; echo >&5\n\
         wait $A; wait $S; echo ended: $?; cat answers; await stacks 0 && echo none is left; cat log",
    );
    says(
        output,
        &[
            "names ('0.0.0.0', 8) ('10.7.8.2', 8)",
            "b'first text' b'still text' b'second text' b'new text'",
            "b'datagram text'",
            "b'own text'",
            "two leases",
            "ended: 0",
            "none is left",
        ],
    );
}

/// Its master becomes itself once more before it forks its worker, and closes what it has left open for that.
#[test]
fn haproxys_master_serves_on_a_daemon() {
    haproxys_master(on_daemon, "");
}

#[test]
fn haproxys_master_serves_on_a_link_of_its_own() {
    haproxys_master(on_own_link, "-link");
}

fn haproxys_master(on: On, place: &str) {
    if Command::new("haproxy").arg("-v").output().is_err() {
        return skipped_here("no haproxy");
    }
    let output = on(
        &format!("kept-haproxy{place}"),
        "cat > ha.cfg <<'END'\n\
defaults\n mode http\n timeout connect 2s\n timeout client 2s\n timeout server 2s\n\
frontend f\n bind 0.0.0.0:8\n http-request return status 200 content-type text/plain string served\n\
END\n",
        "$ON haproxy -W -f ha.cfg 2> haproxy.log & S=$!\n\
         await curl -sf --max-time 2 http://10.7.8.2:8/; curl -s --max-time 2 http://10.7.8.2:8/\n\
         kill $S; wait $S; echo; echo ended: $?; cat haproxy.log log",
    );
    says(output, &["served", "ended: 0"]);
}

/// A child that another program started has a lease of its own, beside its parent's; so has one whose environment is older than the stack.
#[test]
fn children_on_a_daemon_have_leases_of_their_own() {
    starts_another(on_daemon, "");
}

#[test]
fn programs_that_a_program_starts_have_leases_of_its_link() {
    starts_another(on_own_link, "-link");
}

fn starts_another(on: On, place: &str) {
    let output = on(
        &format!("kept-lease{place}"),
        "cat > server.py <<'END'\n\
import os, socket, subprocess, sys\n\
l = socket.create_server(('0.0.0.0', int(sys.argv[1])))\n\
start = lambda port, env: subprocess.Popen([sys.executable, 'server.py', port], env=env)\n\
if sys.argv[1] == '8': children = start('10', None), start('11', dict(os.environ, MORE='1'))\n\
s, _ = l.accept(); s.sendall(sys.argv[1].encode()); s.close()\n\
if sys.argv[1] == '8': sys.exit(sum(child.wait() for child in children))\n\
END\n",
        "$ON python3 server.py 8 & S=$!\n\
         await stacks 3 && echo three leases\n\
         python3 -c 'from reached import reached; print(*(reached(port).recv(9) for port in (11, 10, 8)))'; wait $S; echo ended: $?",
    );
    says(output, &["three leases", "b'11' b'10' b'8'", "ended: 0"]);
}
