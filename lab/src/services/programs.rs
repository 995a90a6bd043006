//! The servers, unmodified, and what clients ask of them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::{files::write, way::Way};
use crate::kit::find_program;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Redis,
    Memcached {
        threads: usize,
    },
    Nginx,
    /// Answers by itself; each thread has a listener of its own.
    Haproxy {
        threads: usize,
    },
    Asyncio,
    /// As netperf's: one connection after another, each byte comes back; with `closes` a connection for each.
    Rr {
        closes: bool,
    },
    /// The same for datagrams.
    UdpRr,
    /// For bulk.
    Iperf,
}

/// An echo server of Python's own event loop.
const ASYNCIO: &str = "
import asyncio, sys
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(main())
";

/// Blocking calls, as netperf's server makes them.
const RR: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=128)
while True:
    stream, _ = listener.accept()
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while text := stream.recv(4096):
            stream.sendall(text)
            if sys.argv[3] == 'close':
                break
    except ConnectionError:
        pass
    stream.close()
";

const UDP_RR: &str = "
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
while True:
    text, peer = server.recvfrom(4096)
    server.sendto(text, peer)
";

/// Bytes of a value, and of an echo.
const VALUE: usize = 100;

impl Program {
    /// How many threads serve.
    pub const fn threads(self) -> usize {
        match self {
            Self::Memcached { threads } | Self::Haproxy { threads } => threads,
            _ => 1,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Memcached { .. } => "memcached",
            Self::Nginx => "nginx",
            Self::Haproxy { .. } => "haproxy",
            Self::Asyncio | Self::Rr { .. } | Self::UdpRr => "python3",
            Self::Iperf => "iperf3",
        }
    }

    pub const fn is_of_datagrams(self) -> bool {
        matches!(self, Self::UdpRr)
    }

    /// Its command line; what it needs of files is written.
    pub fn command(
        self,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<(PathBuf, Vec<String>), String> {
        let file =
            find_program(self.name()).ok_or_else(|| format!("{} is not installed", self.name()))?;
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let python = |text: &str, more: &[&str]| {
            let words = [&["-c", text, &ip, &port][..], more].concat();
            words.into_iter().map(str::to_owned).collect()
        };
        let words = |line: String| line.split(' ').map(str::to_owned).collect();
        let place = folder.display();
        let arguments = match self {
            Self::Redis => {
                let quiet = format!("--bind {ip} --port {port} --protected-mode no --dir {place}");
                let mut arguments: Vec<_> = words(quiet);
                arguments.extend(["--save".to_owned(), String::new()]);
                arguments
            }
            Self::Memcached { threads } => words(format!(
                "-u root -l {ip} -p {port} -U 0 -t {threads} -c 2048"
            )),
            // sendfile and tcp_nopush as Debian's own configuration has them: with them both sides give out large files fastest.
            Self::Nginx => {
                write(folder, "1k", &[b'x'; 1 << 10])?;
                write(folder, "1m", &vec![b'x'; 1 << 20])?;
                let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
                    .concat();
                let text = format!(
                    "user root; daemon off; master_process off; pid {place}/pid; error_log {place}/errors;
                    events {{ worker_connections 2048; }}
                    http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; {temporary}
                    server {{ listen {ip}:{port}; root {place}; }} }}"
                );
                let file = write(folder, "nginx.conf", text.as_bytes())?;
                words(format!("-c {}", file.display()))
            }
            Self::Haproxy { threads } => {
                let text = format!(
                    "global\n nbthread {threads}\n maxconn 4096\n\
                    defaults\n mode http\n timeout client 60s\n timeout server 60s\n timeout connect 5s\n\
                    frontend f\n bind {ip}:{port} shards by-thread\n \
                    http-request return status 200 content-type text/plain string {}\n",
                    "x".repeat(VALUE)
                );
                let file = write(folder, "haproxy.cfg", text.as_bytes())?;
                words(format!("-db -f {}", file.display()))
            }
            Self::Iperf => words(format!("-s -B {ip} -p {port}")),
            Self::Asyncio => python(ASYNCIO, &[]),
            Self::Rr { closes } => python(RR, &[if closes { "close" } else { "stay" }]),
            Self::UdpRr => python(UDP_RR, &[]),
        };
        Ok((file, arguments))
    }

    /// What is asked before all else, once, and how its answer ends.
    pub fn preparation(self) -> Option<(Vec<u8>, &'static [u8])> {
        let value = "x".repeat(VALUE);
        match self {
            Self::Redis => Some((format!("SET k {value}\r\n").into(), b"OK\r\n")),
            Self::Memcached { .. } => {
                let text = format!("set k 0 0 {VALUE}\r\n{value}\r\n");
                Some((text.into(), b"STORED\r\n"))
            }
            _ => None,
        }
    }

    /// Whether an answer is there as a whole. A web server's tells its length.
    pub fn is_whole(self, answer: &[u8]) -> bool {
        match self {
            Self::Redis => answer.len() == b"$100\r\n".len() + VALUE + 2,
            Self::Memcached { .. } => answer.ends_with(b"END\r\n"),
            Self::Asyncio => answer.len() == VALUE,
            Self::Rr { .. } | Self::UdpRr => answer.len() == BYTE.len(),
            Self::Iperf => true,
            Self::Nginx | Self::Haproxy { .. } => {
                let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
                let Some((head, _)) = text.split_once("\r\n\r\n") else {
                    return false;
                };
                let length = head
                    .lines()
                    .find_map(|l| l.strip_prefix("content-length: "));
                let length = length.and_then(|l| l.parse::<usize>().ok());
                length.is_some_and(|length| answer.len() == head.len() + 4 + length)
            }
        }
    }
}

/// Something to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// What the names of its rows begin with.
    pub id: &'static str,
    pub program: Program,
    /// netchan's; the kernel's TCP is always reached over the veth.
    pub way: Way,
    pub clients: usize,
    pub depth: usize,
    pub fresh: bool,
    pub request: &'static [u8],
    /// Keys of netchan's configuration.
    pub settings: &'static str,
    /// Queues of its link.
    pub queues: usize,
    /// What its rate is to be, over the kernel's. Without a target it has fewer rounds.
    pub target: &'static str,
    /// Quick runs have it, too.
    pub quick: bool,
}

const GET: &[u8] = b"GET k\r\n";
const MEMCACHED_GET: &[u8] = b"get k\r\n";
const ECHO: &[u8] = &[b'x'; VALUE];
const BYTE: &[u8] = b"x";

const PLAIN: Service = Service {
    id: "",
    program: Program::Redis,
    way: Way::Packet,
    clients: 1,
    depth: 1,
    fresh: false,
    request: GET,
    settings: "",
    queues: 1,
    target: "",
    quick: false,
};

const WEB: Service = Service {
    program: Program::Nginx,
    clients: 8,
    request: b"GET /1k HTTP/1.1\r\nHost: n\r\n\r\n",
    ..PLAIN
};

/// Each thread has a listener and connections of its own.
const THREADS: Service = Service {
    program: Program::Haproxy { threads: 2 },
    clients: 8,
    request: b"GET / HTTP/1.1\r\nHost: n\r\n\r\n",
    ..PLAIN
};

const WEB_1M: Service = Service {
    request: b"GET /1m HTTP/1.1\r\nHost: n\r\n\r\n",
    ..WEB
};

const RR_SERVICE: Service = Service {
    program: Program::Rr { closes: false },
    request: BYTE,
    ..PLAIN
};

/// The one of whose server switches and system calls are told.
pub(super) const REDIS_1: &str = "redis_1_veth";

/// All of them. `over_kernel`'s targets are issue 17's.
#[rustfmt::skip]
pub(super) const SERVICES: &[Service] = &[
    Service { id: REDIS_1, target: "1.0", quick: true, ..PLAIN },
    Service { id: "redis_1_spin", settings: "spin = \"20us\"", target: "1.7", ..PLAIN },
    Service { id: "redis_50_veth", clients: 50, target: "1.3", quick: true, ..PLAIN },
    Service { id: "redis_500_veth", clients: 500, ..PLAIN },
    Service { id: "redis_1_pipeline_16_veth", depth: 16, ..PLAIN },
    Service { id: "redis_50_pipeline_16_veth", clients: 50, depth: 16, ..PLAIN },
    Service { id: "redis_500_pipeline_16_veth", clients: 500, depth: 16, ..PLAIN },
    Service { id: "redis_1_tap", way: Way::Tap, ..PLAIN },
    Service { id: "redis_50_tap", way: Way::Tap, clients: 50, ..PLAIN },
    Service { id: "memcached_1_thread", program: Program::Memcached { threads: 1 }, clients: 8, request: MEMCACHED_GET, target: "1.2", ..PLAIN },
    Service { id: "memcached_4_threads", program: Program::Memcached { threads: 4 }, clients: 8, request: MEMCACHED_GET, target: "1.2", quick: true, ..PLAIN },
    Service { id: "memcached_4_threads_2_queues", program: Program::Memcached { threads: 4 }, clients: 8, request: MEMCACHED_GET, queues: 2, ..PLAIN },
    Service { id: "haproxy_2_threads", queues: 1, ..THREADS },
    Service { id: "haproxy_2_threads_2_queues", queues: 2, quick: true, ..THREADS },
    Service { id: "haproxy_2_threads_2_queues_tap", queues: 2, way: Way::Tap, ..THREADS },
    Service { id: "nginx_1k_veth", target: "1.3", quick: true, ..WEB },
    Service { id: "nginx_1m_veth", target: "1.2", ..WEB_1M },
    Service { id: "nginx_1k_fresh_veth", fresh: true, request: b"GET /1k HTTP/1.0\r\n\r\n", target: "1.3", quick: true, ..WEB },
    Service { id: "nginx_1m_fresh_veth", fresh: true, request: b"GET /1m HTTP/1.0\r\n\r\n", ..WEB },
    Service { id: "nginx_1k_tap", way: Way::Tap, ..WEB },
    Service { id: "nginx_1m_tap", way: Way::Tap, ..WEB_1M },
    Service { id: "asyncio_8_veth", program: Program::Asyncio, clients: 8, request: ECHO, ..PLAIN },
    Service { id: "tcp_rr_veth", ..RR_SERVICE },
    Service { id: "tcp_rr_tap", way: Way::Tap, ..RR_SERVICE },
    Service { id: "tcp_crr_veth", program: Program::Rr { closes: true }, fresh: true, ..RR_SERVICE },
    Service { id: "udp_rr_veth", program: Program::UdpRr, quick: true, ..RR_SERVICE },
];

/// The one called `id`.
///
/// # Panics
/// Where the table has none.
pub(super) fn service(id: &str) -> &'static Service {
    let found = SERVICES.iter().find(|service| service.id == id);
    found.expect("a service of the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_ids_of_their_own() {
        let mut ids: Vec<_> = SERVICES.iter().map(|service| service.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), SERVICES.len());
        for id in [
            REDIS_1,
            "redis_50_veth",
            "nginx_1k_veth",
            "tcp_rr_veth",
            "tcp_rr_tap",
        ] {
            assert!(ids.contains(&id), "rows of their own ask for {id}");
        }
    }

    #[test]
    fn answers_are_whole_at_their_end() {
        let value = "x".repeat(VALUE);
        let memcached = Program::Memcached { threads: 1 };
        let http = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for (program, answer) in [
            (Program::Redis, format!("$100\r\n{value}\r\n")),
            (memcached, format!("VALUE k 0 100\r\n{value}\r\nEND\r\n")),
            (Program::Asyncio, value.clone()),
            (Program::Rr { closes: true }, "x".to_owned()),
            (Program::Nginx, http.to_owned()),
        ] {
            let answer = answer.as_bytes();
            assert!(program.is_whole(answer), "{program:?}");
            assert!(
                !program.is_whole(&answer[..answer.len() - 1]),
                "{program:?}"
            );
        }
    }
}
