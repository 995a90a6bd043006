//! Linux's side: sockets of this process, which is in a network namespace of its own and may change its settings.

use std::{fs, io, net::SocketAddr, os::fd::OwnedFd};

use proto::time::{Duration, Instant};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
        connect, listen, recv, send, shutdown, socket_with, sockopt,
    },
};

use super::{
    End, Side,
    netchan_side::{KEEPALIVE, KEEPALIVES},
    plan::{Manners, Theirs},
};

/// The kernel.
#[derive(Default)]
pub struct Linux {
    listeners: Vec<OwnedFd>,
}

struct Kernels(OwnedFd);

/// Linux's longest retransmission timeout. Its own is 120 s, and without timestamps, where a third of all round trips is broken, it comes to sleep
/// that long.
const RTO_MAX_MS: &str = "5000";
/// How often it repeats what a socket that was closed has left to say: its own is 8, which such a link reaches.
const ORPHAN_RETRIES: &str = "100";

/// States of /proc/net/tcp that are none: TIME-WAIT, closed, LISTEN.
const GONE: [&str; 3] = ["06", "07", "0A"];

fn prepared(at: SocketAddr, manners: &Manners) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVES)?;
    sockopt::set_tcp_nodelay(&socket, manners.no_delay)?;
    sockopt::set_socket_oobinline(&socket, manners.inline)?;
    if let Some(bytes) = manners.receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    bind(&socket, &at)?;
    Ok(socket)
}

impl Linux {
    /// The kernel of this namespace, told as `theirs` says.
    ///
    /// # Errors
    /// What it does not take.
    pub fn new(theirs: &Theirs) -> io::Result<Self> {
        let set = |key: &str, value: &str| {
            let path = format!("/proc/sys/net/ipv4/{key}");
            fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))
        };
        let switch = |on: bool| if on { "1" } else { "0" };
        set("tcp_timestamps", switch(theirs.timestamps))?;
        set("tcp_sack", switch(theirs.sack))?;
        set("tcp_window_scaling", switch(theirs.window_scale))?;
        set("tcp_ecn", &theirs.ecn.to_string())?;
        let most = theirs.receive_buffer_max;
        set("tcp_rmem", &format!("4096 131072 {most}"))?;
        set("tcp_orphan_retries", ORPHAN_RETRIES)?;
        match set("tcp_rto_max_ms", RTO_MAX_MS) {
            // Kernels before 6.15.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        Ok(Self::default())
    }
}

impl Side for Linux {
    fn listen(&mut self, at: SocketAddr, manners: &Manners) -> io::Result<usize> {
        let socket = prepared(at, manners)?;
        listen(&socket, 8)?;
        self.listeners.push(socket);
        Ok(self.listeners.len() - 1)
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<Box<dyn End>>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match accept_with(&self.listeners[listener], flags) {
            Ok(socket) => Ok(Some(Box::new(Kernels(socket)))),
            // Gone before it was taken (accept(2)).
            Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn connect(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        manners: &Manners,
    ) -> io::Result<Box<dyn End>> {
        let socket = prepared(from, manners)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Box::new(Kernels(socket))),
            Err(e) => Err(e.into()),
        }
    }

    fn turn(&mut self, _: Instant) -> bool {
        false
    }

    fn next_event(&self) -> Instant {
        Instant::FAR
    }

    fn left_over(&self) -> Vec<String> {
        let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")));
        let text = tables.map(Result::unwrap_or_default).join("\n");
        let state = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        let rows = text.lines().filter(|line| {
            state(line).is_some_and(|st| st.len() == 2 && st != "st" && !GONE.contains(&&*st))
        });
        rows.map(|row| format!("Linux: {}", row.trim())).collect()
    }
}

impl End for Kernels {
    fn connected(&mut self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
        if poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Ok(false);
        }
        sockopt::socket_error(&self.0)??;
        Ok(true)
    }

    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, text, SendFlags::NOSIGNAL)?)
    }

    fn write_urgent(&mut self, byte: u8) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::OOB;
        Ok(send(&self.0, &[byte], flags)?)
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (n, _) = recv(&self.0, room, RecvFlags::empty())?;
        Ok(n)
    }

    fn peek(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (n, _) = recv(&self.0, room, RecvFlags::PEEK)?;
        Ok(n)
    }

    fn read_urgent(&mut self) -> Option<u8> {
        let mut byte = [0];
        let got = recv(&self.0, &mut byte, RecvFlags::OOB);
        got.is_ok_and(|(n, _)| n == 1).then_some(byte[0])
    }

    fn shut(&mut self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Write)?)
    }

    fn abort(&mut self) {
        // A socket that is gone already needs no reset.
        let _ = sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }
}
