//! Servers as people start them, in one process or in many, in the foreground and in the background.

use super::{
    handed::{says, script},
    skipped_here,
};
use std::process::Command;

/// Asks port 8 until there is an answer.
const ASK: &str = "\
cat > try.py <<'END'
import socket, sys
kind, question = sys.argv[1], sys.argv[2].encode().decode('unicode_escape').encode('latin1')
s = socket.socket(type=socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM)
s.settimeout(2)
s.connect(('10.7.8.2', 8))
s.sendall(question)
if not s.recv(500): sys.exit('an end')
print('clients are served')
END
";

struct Server {
    /// Needed, and how it is told apart.
    programs: &'static [&'static str],
    name: &'static str,
    /// Shell, in a folder of its own.
    prepare: &'static str,
    command: &'static str,
    kind: &'static str,
    question: &'static str,
    /// More options of `netchan run`.
    options: &'static str,
}

const HTTP: &str = "GET / HTTP/1.0\\r\\n\\r\\n";
/// The address of x.test.
const DNS: &str = "\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x01x\\x04test\\0\\0\\x01\\0\\x01";
const NGINX: &str = "cat > nginx.conf <<END\n\
    daemon off; user root; $HOW pid nginx.pid; error_log stderr; events { worker_connections 64; }\n\
    http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n\
    server { listen 8; return 200 ok; } }\nEND";
const HAPROXY: &str = "cat > ha.cfg <<END\n\
    defaults\n mode http\n timeout connect 2s\n timeout client 2s\n timeout server 2s\n\
    frontend f\n bind 0.0.0.0:8\n http-request return status 200 content-type text/plain string ok\nEND";

const fn server(
    name: &'static str,
    programs: &'static [&'static str],
    prepare: &'static str,
    command: &'static str,
) -> Server {
    Server {
        programs,
        name,
        prepare,
        command,
        kind: "tcp",
        question: HTTP,
        options: "",
    }
}

impl Server {
    /// Its stack is in another process.
    const fn supervised(mut self) -> Self {
        self.options = "--supervise ";
        self
    }

    const fn asked(mut self, kind: &'static str, question: &'static str) -> Self {
        self.kind = kind;
        self.question = question;
        self
    }

    fn run(&self) {
        let there = |program: &&&str| {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output();
            found.is_ok_and(|found| found.status.success())
        };
        if let Some(missing) = self.programs.iter().find(|program| !there(program)) {
            return skipped_here(&format!("{}: no {missing}", self.name));
        }
        let Self {
            prepare,
            command,
            options,
            kind,
            question,
            ..
        } = self;
        let output = script(
            self.name,
            &format!(
                "chmod 755 .; {ASK}{prepare}\n${{RUN%--}}{options}-- {command} > log 2>&1 & S=$!\n\
                 await python3 try.py {kind} '{question}'; python3 try.py {kind} '{question}'\n\
                 kill $S; [ -e pid ] && kill $(cat pid); wait $S\n\
                 [ $(wc -c < log) -lt 50000 ] && echo a short log; head -c 3000 log"
            ),
        );
        says(output, &["clients are served", "a short log"]);
    }
}

#[test]
fn nginx_serves_alone_and_from_its_workers() {
    const ALONE: &str = "HOW='master_process off;'";
    const WORKERS: &str = "HOW='worker_processes 2;'";
    for (name, how) in [("nginx", ALONE), ("nginx-workers", WORKERS)] {
        let prepare = format!("{how}\n{NGINX}").leak();
        server(name, &["nginx"], prepare, "nginx -p $PWD/ -c nginx.conf").run();
    }
}

#[test]
fn haproxy_serves_alone_and_as_master() {
    let needs = &["haproxy"];
    server("haproxy", needs, HAPROXY, "haproxy -db -f ha.cfg").run();
    server("haproxy-w", needs, HAPROXY, "haproxy -W -f ha.cfg").run();
    for (name, command) in [
        ("haproxy-w-supervised", "haproxy -W -f ha.cfg"),
        ("haproxy-d-supervised", "haproxy -D -p pid -f ha.cfg"),
    ] {
        server(name, needs, HAPROXY, command).supervised().run();
    }
}

/// Its stack goes on without the process that goes away, and ends with the last one that holds the listener.
#[test]
fn haproxy_in_the_background_serves() {
    let needs = &["haproxy"];
    server("haproxy-d", needs, HAPROXY, "haproxy -D -p pid -f ha.cfg").run();
}

#[test]
fn socats_children_serve() {
    let forking = "socat TCP-LISTEN:8,reuseaddr,fork PIPE";
    server("socat-fork", &["socat"], "", forking).run();
    let executing = "socat TCP-LISTEN:8,reuseaddr,fork EXEC:cat,pipes";
    server("socat-exec", &["socat"], "", executing).run();
}

/// Its children become another program, and the connection is their standard input and output.
#[test]
fn sshd_serves() {
    const KEY: &str = "ssh-keygen -q -t ed25519 -N '' -f key; mkdir -p /run/sshd";
    const COMMAND: &str =
        "/usr/sbin/sshd -D -e -f /dev/null -h $PWD/key -p 8 -o PidFile=none -o UsePAM=no";
    server("sshd", &["/usr/sbin/sshd", "ssh-keygen"], KEY, COMMAND).run();
}

#[test]
fn servers_in_one_process_serve() {
    let memcached = "memcached -u nobody -t 4 -l 0.0.0.0 -p 8";
    server("memcached", &["memcached"], "", memcached)
        .asked("tcp", "version\\r\\n")
        .run();
    let redis = "redis-server --port 8 --bind 0.0.0.0 --protected-mode no --save ''";
    server("redis", &["redis-server"], "", redis)
        .asked("tcp", "PING\\r\\n")
        .run();
    let dnsmasq = "dnsmasq -k -C /dev/null -p 8 --address=/x.test/1.2.3.4 --no-resolv --no-hosts --user=root --pid-file=";
    server("dnsmasq", &["dnsmasq"], "", dnsmasq)
        .asked("udp", DNS)
        .run();
}

/// As python's http.server runs CGI programs: the child's words are there before the end that its parent says right behind it.
#[test]
fn what_a_child_wrote_comes_before_its_parents_end() {
    let output = script(
        "forked-end",
        "cat > server.py <<'END'\n\
import os, socket\n\
l = socket.create_server(('0.0.0.0', 8))\n\
for n in range(300):\n  \
  s, _ = l.accept()\n  \
  if (p := os.fork()) == 0: os.dup2(s.fileno(), 1); os.execv('/bin/echo', ['echo', str(n)])\n  \
  os.waitpid(p, 0); s.shutdown(socket.SHUT_WR); s.close()\n\
END\n\
         cat > ask.py <<'END'\n\
import socket\n\
def asked(n):\n  \
  s = socket.create_connection(('10.7.8.2', 8), 20); got = b''\n  \
  while part := s.recv(99): got += part\n  \
  return got == b'%d\\n' % n\n\
print('right', sum(asked(n) for n in range(300)))\n\
END\n\
         $RUN python3 server.py & S=$!\n\
         await sh -c \"$netchan show sockets 2>/dev/null | grep -q ':8 '\"; python3 ask.py; wait $S",
    );
    says(output, &["right 300"]);
}

/// A worker that was started by exec takes connections, a listener and a datagram socket from messages; one that listens on what its parent has bound is told.
#[test]
fn sockets_go_along_with_messages() {
    let output = script(
        "passed",
        "cat > worker.py <<'END'\n\
import array, os, socket, sys, threading\n\
if sys.argv[1] == 'listens':\n  \
  s = socket.socket(fileno=int(sys.argv[2])); s.listen(); sys.exit()\n\
line = socket.socket(fileno=0)\n\
def take():\n  \
  word, fds, flags, peer = socket.recv_fds(line, 9, 1)\n  \
  return socket.socket(fileno=fds[0]) if fds else None\n\
stream = take(); print('from', stream.getpeername()[0], 'at', stream.getsockname(), flush=True)\n\
stream.sendall(b'one ' + stream.recv(99)); stream.close()\n\
listener = take(); stream, peer = listener.accept(); stream.sendall(b'two ' + stream.recv(99)); stream.close()\n\
datagrams = take(); word, peer = datagrams.recvfrom(99); datagrams.sendto(b'three ' + word, peer)\n\
END\n\
         cat > server.py <<'END'\n\
import os, socket, subprocess, sys\n\
line, theirs = socket.socketpair()\n\
worker = subprocess.Popen([sys.executable, 'worker.py', 'serves'], stdin=theirs)\n\
listener = socket.create_server(('0.0.0.0', 8)); datagrams = socket.socket(type=socket.SOCK_DGRAM); datagrams.bind(('0.0.0.0', 9))\n\
stream, peer = listener.accept()\n\
for s in stream, listener, datagrams: socket.send_fds(line, [b'x'], [s.fileno()]); s.close()\n\
worker.wait()\n\
bound = socket.socket(); bound.bind(('0.0.0.0', 10))\n\
subprocess.run([sys.executable, 'worker.py', 'listens', str(bound.fileno())], pass_fds=[bound.fileno()])\n\
END\n\
         cat > ask.py <<'END'\n\
import socket\n\
def asked():\n  \
  with socket.create_connection(('10.7.8.2', 8), 20) as s: s.sendall(b'asked'); return s.recv(99)\n\
print(asked()); print(asked())\n\
s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(20); s.connect(('10.7.8.2', 9)); s.send(b'asked'); print(s.recv(99))\n\
END\n\
         $RUN python3 server.py > log 2>&1 & S=$!\n\
         for i in $(seq 100); do $netchan show sockets 2>/dev/null | grep -q ':9 ' && break; sleep 0.05; done\n\
         python3 ask.py; wait $S; cat log",
    );
    says(
        output,
        &[
            "from 10.7.8.1 at ('10.7.8.2', 8)",
            "b'one asked'",
            "b'two asked'",
            "b'three asked'",
            "listens on a socket without a port",
            "run it with --supervise",
        ],
    );
}
