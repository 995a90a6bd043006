//! Ports of a daemon's that several programs have, at once or one after the other: as a kernel's.

use super::handed::{says, script};

const DAEMON: &str = "$netchan daemon --link tap:nc8 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
     await grep -q lends log\n\
     ON=\"$netchan run --link daemon:$PWD/d --\"\n\
     has() { $netchan show leases --pid $daemon | grep -q \"$1\"; }\n";

const END: &str = "kill $daemon; wait $daemon";

/// Two servers at one port, as `nginx` or `haproxy` of the same user by SO_REUSEPORT: each has some of the connections, and one that ends leaves the port to
/// the other.
#[test]
fn programs_share_a_port() {
    let output = script(
        "ports-shared",
        &format!(
            "{DAEMON}\
             cat > serve.py <<'END'\n\
import socket, sys\n\
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('0.0.0.0', 8080)); s.listen(64)\n\
while True:\n  \
  c, _ = s.accept(); c.sendall(sys.argv[1].encode()); c.close()\n\
END\n\
             cat > ask.py <<'END'\n\
import socket, sys\n\
names = [socket.create_connection(('10.7.8.2', 8080), 10).recv(9).decode() for _ in range(40)]\n\
print(sys.argv[1], len(names), 'of', sorted(set(names)))\n\
END\n\
             $ON python3 serve.py one & one=$!; await has 8080\n\
             python3 ask.py alone:\n\
             $ON python3 serve.py two & two=$!\n\
             both() {{ test $($netchan show leases --pid $daemon | grep -c 8080) = 2; }}; await both\n\
             python3 ask.py shared:\n\
             $ON python3 -c 'import socket; socket.create_server((\"\", 8080))' 2>&1 | tail -1 | sed 's/^/not with one that does not share: /'\n\
             kill $one; wait $one\n\
             alone() {{ ! both; }}; await alone\n\
             python3 ask.py left:\n\
             kill $two; wait $two\n\
             {END}"
        ),
    );
    let wanted = [
        "alone: 40 of ['one']",
        "shared: 40 of ['one', 'two']",
        "not with one that does not share: OSError: [Errno 98] Address already in use",
        "left: 40 of ['two']",
    ];
    says(output, &wanted);
}

/// A server that is started anew while the old one, which listens no more, serves its connections to their end; and a port that is free when its socket is
/// closed, though the program goes on.
#[test]
fn a_port_is_the_next_programs() {
    let output = script(
        "ports-next",
        &format!(
            "{DAEMON}\
             cat > old.py <<'END'\n\
import os, signal, socket, time\n\
b = socket.socket(); b.bind(('10.7.8.2', 8081)); b.close()\n\
s = socket.create_server(('', 8080))\n\
c, _ = s.accept(); far, _ = s.accept()\n\
s.close(); open('closed', 'w')\n\
for one in c, far:\n  \
  while text := one.recv(99): one.sendall(b'old ' + text)\n  \
  one.close()\n\
time.sleep(60)\n\
END\n\
             cat > new.py <<'END'\n\
import socket\n\
b = socket.socket(); b.bind(('10.7.8.2', 8081)); print('a port that was closed is free', flush=True)\n\
s = socket.create_server(('', 8080)); open('listens', 'w')\n\
while True:\n  \
  c, _ = s.accept(); c.sendall(b'new'); c.close()\n\
END\n\
             cat > ask.py <<'END'\n\
import os, socket, sys, time\n\
c = socket.create_connection(('10.7.8.2', 8080), 10)\n\
open(sys.argv[1], 'w')\n\
while not os.path.exists('listens'): time.sleep(.01)\n\
for n in range(3):\n  \
  c.sendall(b'%d' % n); print(sys.argv[1], c.recv(99).decode(), flush=True)\n\
print(sys.argv[1], socket.create_connection(('10.7.8.2', 8080), 10).recv(9).decode(), flush=True)\n\
c.close()\n\
END\n\
             $ON python3 old.py & old=$!; await has 8080\n\
             python3 ask.py kernel & kernel=$!; await test -f kernel\n\
             $ON python3 ask.py daemon & client=$!; await test -f closed\n\
             $ON python3 new.py & new=$!; await test -f listens\n\
             await has '(closed)' && echo the old one has connections\n\
             wait $kernel $client\n\
             gone() {{ ! has '(closed)'; }}; await gone && echo the old one has none\n\
             kill $old $new; wait $old $new\n\
             {END}"
        ),
    );
    let wanted = [
        "a port that was closed is free",
        "the old one has connections",
        "kernel old 0",
        "kernel old 1",
        "kernel old 2",
        "kernel new",
        "daemon old 0",
        "daemon old 1",
        "daemon old 2",
        "daemon new",
        "the old one has none",
    ];
    says(output, &wanted);
}
