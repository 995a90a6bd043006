//! What other processes hold goes on where the process that has the stack ends, or becomes another program: connections from before, listeners, datagrams.

use std::process::Command;

use super::{
    handed::{says, script},
    skipped_here,
};

/// A server that goes into the background as its first argument says, with a connection that it had before. It ends once it was asked three times.
const SERVER: &str = "\
cat > server.py <<'END'\n\
import os, socket, sys\n\
l = socket.create_server(('0.0.0.0', 8)); u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('0.0.0.0', 9))\n\
kept, _ = l.accept(); kept.sendall(b'parent ' + kept.recv(9))\n\
if os.fork():\n  \
  if sys.argv[1] == '_exit': os._exit(0)\n  \
  sys.exit(0)\n\
os.setsid()\n\
for n in range(3):\n  \
  s, _ = l.accept(); s.sendall(b'child %d ' % n + s.recv(9)); s.close()\n\
data, peer = u.recvfrom(9); u.sendto(b'datagram ' + data, peer)\n\
text = b''\n\
while part := kept.recv(1 << 16): text += part\n\
kept.sendall(b'%d bytes' % len(text))\n\
END\n\
cat > ask.py <<'END'\n\
import socket, sys\n\
kept = socket.create_connection(('10.7.8.2', 8), 20); kept.sendall(b'one'); print(kept.recv(99), flush=True)\n\
sys.stdin.readline()\n\
for n in range(3):\n  \
  with socket.create_connection(('10.7.8.2', 8), 20) as s: s.sendall(b'two'); print(s.recv(99))\n\
u = socket.socket(type=socket.SOCK_DGRAM); u.settimeout(20); u.sendto(b'three', ('10.7.8.2', 9)); print(u.recv(99))\n\
kept.sendall(b'x' * 3000000); kept.shutdown(socket.SHUT_WR); print(kept.recv(99), kept.recv(99))\n\
END\n";

/// Runs it; a line each tells that the program has ended, and that no stack is left after its child.
fn background(name: &str, how: &str) -> Option<String> {
    script(
        name,
        &format!(
            "{SERVER}mkfifo go\n\
             $RUN python3 server.py {how} 2> log & S=$!\n\
             await sh -c \"$netchan show sockets 2>/dev/null | grep -q ':8 '\"\n\
             python3 ask.py < go > answers & A=$!\n\
             exec 5> go; wait $S; echo the program has ended: $?; echo >&5; wait $A; cat answers\n\
             none() {{ ! $netchan show sockets 2>/dev/null >&2; }}; await none && echo no stack is left; cat log"
        ),
    )
}

const SERVED: [&str; 8] = [
    "the program has ended: 0",
    "b'parent one'",
    "b'child 0 two'",
    "b'child 1 two'",
    "b'child 2 two'",
    "b'datagram three'",
    "b'3000000 bytes' b''",
    "no stack is left",
];

#[test]
fn a_server_goes_into_the_background() {
    says(background("kept-exit", "exit"), &SERVED);
}

/// Without exit handlers.
#[test]
fn a_server_goes_into_the_background_by_bare_exit() {
    says(background("kept-_exit", "_exit"), &SERVED);
}

/// On a daemon a program that becomes another one keeps what stays open, and the new one has a lease of its own beside it. An exec that fails changes nothing.
#[test]
fn a_program_on_a_daemon_becomes_another_one() {
    let output = script(
        "kept-exec",
        "cat > server.py <<'END'\n\
import os, socket, sys\n\
if sys.argv[1] == 'first':\n  \
  l = socket.create_server(('0.0.0.0', 8)); kept, _ = l.accept(); kept.sendall(b'first ' + kept.recv(9))\n  \
  try: os.execv('/nonexistent', ['x'])\n  \
  except OSError: kept.sendall(b'still ' + kept.recv(9))\n  \
  l.set_inheritable(True); kept.set_inheritable(True)\n  \
  os.execv(sys.executable, [sys.executable, 'server.py', 'second', str(l.fileno()), str(kept.fileno())])\n\
l, kept = (socket.socket(fileno=int(number)) for number in sys.argv[2:])\n\
print('names', l.getsockname(), kept.getsockname(), flush=True)\n\
kept.sendall(b'second ' + kept.recv(9))\n\
s, _ = l.accept(); s.sendall(b'new ' + s.recv(9)); s.close()\n\
own = socket.create_server(('0.0.0.0', 10)); s, _ = own.accept(); s.sendall(b'own ' + s.recv(9)); s.close()\n\
END\n\
         cat > ask.py <<'END'\n\
import socket, time\n\
def reached(port):\n  \
  for n in range(400):\n    \
    try: return socket.create_connection(('10.7.8.2', port), 20)\n    \
    except OSError: time.sleep(0.05)\n\
def asked(s): s.sendall(b'text'); return s.recv(99)\n\
kept = reached(8); print(asked(kept), asked(kept), asked(kept), asked(reached(8)), asked(reached(10)), kept.recv(99))\n\
END\n\
         ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
         $netchan daemon --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
         await test -S d\n\
         timeout 60 $netchan run --link daemon:$PWD/d -- python3 server.py first & S=$!\n\
         python3 ask.py; wait $S; echo ended: $?\n\
         given_back() { [ $($netchan show --json leases | grep -c '\"program\"') = 0 ]; }; await given_back && echo no lease is left\n\
         kill $daemon; wait $daemon",
    );
    says(
        output,
        &[
            "names ('0.0.0.0', 8) ('10.7.8.2', 8)",
            "b'first text' b'still text' b'second text' b'new text' b'own text' b''",
            "ended: 0",
            "no lease is left",
        ],
    );
}

/// Its master becomes itself once more before it forks its worker, and closes what it has left open for that.
#[test]
fn haproxys_master_serves_on_a_daemon() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        return skipped_here("no haproxy");
    }
    let output = script(
        "kept-haproxy",
        "cat > ha.cfg <<'END'\n\
defaults\n mode http\n timeout connect 2s\n timeout client 2s\n timeout server 2s\n\
frontend f\n bind 0.0.0.0:8\n http-request return status 200 content-type text/plain string served\n\
END\n\
         ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
         $netchan daemon --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
         await test -S d\n\
         timeout 60 $netchan run --link daemon:$PWD/d -- haproxy -W -f ha.cfg 2> log & S=$!\n\
         await curl -sf --max-time 2 http://10.7.8.2:8/; curl -s --max-time 2 http://10.7.8.2:8/\n\
         kill $S; wait $S; echo; echo ended: $?; kill $daemon; wait $daemon",
    );
    says(output, &["served", "ended: 0"]);
}

/// A child that another program started has a lease of its own, beside its parent's.
#[test]
fn children_on_a_daemon_have_leases_of_their_own() {
    let output = script(
        "kept-lease",
        "cat > server.py <<'END'\n\
import socket, subprocess, sys\n\
l = socket.create_server(('0.0.0.0', int(sys.argv[1])))\n\
if sys.argv[1] == '8': child = subprocess.Popen([sys.executable, 'server.py', '10'])\n\
s, _ = l.accept(); s.sendall(sys.argv[1].encode()); s.close()\n\
if sys.argv[1] == '8': sys.exit(child.wait())\n\
END\n\
         cat > ask.py <<'END'\n\
import socket, time\n\
def reached(port):\n  \
  for n in range(400):\n    \
    try: return socket.create_connection(('10.7.8.2', port), 20)\n    \
    except OSError: time.sleep(0.05)\n\
print(reached(10).recv(9), reached(8).recv(9))\n\
END\n\
         ip link set nc8 down; ip tuntap del dev nc8 mode tap\n\
         $netchan daemon --link tap:nc8,peer=10.7.8.1/24 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
         await test -S d\n\
         timeout 60 $netchan run --link daemon:$PWD/d -- python3 server.py 8 & S=$!\n\
         python3 ask.py; wait $S; echo ended: $?\n\
         kill $daemon; wait $daemon",
    );
    says(output, &["b'10' b'8'", "ended: 0"]);
}
