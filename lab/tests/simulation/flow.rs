//! The applications of the world: each step does what its socket lets it do, and looks at every byte.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr},
};

use netchan::{
    Net,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};
use proto::time::Instant;
use sha2::{Digest, Sha256};

use crate::plan::{DatagramPlan, Random, StreamPlan};

/// SHA-256 of a stream.
pub type Sum = [u8; 32];

/// `Ok(None)` where the answer is "not now".
fn would_block<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(t) => Ok(Some(t)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn domain(v6: bool) -> Domain {
    if v6 { Domain::V6 } else { Domain::V4 }
}

/// One end of a connection: sends its bytes in odd pieces, then FIN; reads in odd pieces to the peer's FIN.
struct End {
    socket: Socket,
    random: Random,
    outgoing: Vec<u8>,
    sent: usize,
    shut: bool,
    received: usize,
    sum: Sha256,
    ended: bool,
}

impl End {
    fn new(socket: Socket, seed: u64, size: usize) -> Self {
        let mut random = Random::new(seed);
        let mut outgoing = vec![0; size];
        random.fill(&mut outgoing);
        Self {
            socket,
            random,
            outgoing,
            sent: 0,
            shut: false,
            received: 0,
            sum: Sha256::new(),
            ended: false,
        }
    }

    fn step(&mut self) -> io::Result<bool> {
        Ok(self.write()? | self.read()?)
    }

    fn write(&mut self) -> io::Result<bool> {
        if self.shut {
            return Ok(false);
        }
        let left = &self.outgoing[self.sent..];
        if left.is_empty() {
            self.socket.shutdown(Shutdown::Write)?;
            self.shut = true;
            return Ok(true);
        }
        let piece = &left[..left.len().min(1 + self.random.below(20_000))];
        let (head, tail) = piece.split_at(self.random.below(piece.len()));
        let sent = would_block(
            self.socket
                .send(&[IoSlice::new(head), IoSlice::new(tail)], None),
        )?;
        self.sent += sent.unwrap_or(0);
        Ok(sent.is_some())
    }

    fn read(&mut self) -> io::Result<bool> {
        if self.ended || self.random.below(8) == 0 {
            return Ok(false); // now and then the application looks elsewhere
        }
        let mut buffer = [0; 16_384];
        let size = 1 + self.random.below(buffer.len() - 1);
        let mut buffers = [IoSliceMut::new(&mut buffer[..size])];
        let Some(got) = would_block(self.socket.receive(&mut buffers, ReceiveFlags::default()))?
        else {
            return Ok(false);
        };
        self.ended = got.len == 0;
        self.received += got.len;
        self.sum.update(&buffer[..got.len]);
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.shut && self.ended
    }

    fn expected(&self) -> Sum {
        Sha256::digest(&self.outgoing).into()
    }
}

/// One connection: the opener, the listener, and the role that took it.
pub struct Stream {
    plan: StreamPlan,
    target: SocketAddr,
    /// `None` once its stack has ended.
    listener: Option<Socket>,
    connecting: Option<Socket>,
    opener: Option<End>,
    taker: Option<End>,
}

impl Stream {
    /// Listens on `target` of `server`, and begins to connect from `client`.
    pub fn new(
        plan: &StreamPlan,
        client: &Net,
        server: &Net,
        target: SocketAddr,
    ) -> io::Result<Self> {
        let listener = Socket::new(server, domain(plan.v6), Kind::Stream)?;
        listener.bind(target)?;
        listener.listen(4)?;
        let connecting = Some(Socket::new(client, domain(plan.v6), Kind::Stream)?);
        Ok(Self {
            plan: plan.clone(),
            target,
            listener: Some(listener),
            connecting,
            opener: None,
            taker: None,
        })
    }

    /// Does what can be done; true if something was.
    pub fn step(&mut self) -> io::Result<bool> {
        let mut moved = false;
        if let Some(socket) = self.connecting.take() {
            if would_block(socket.connect(self.target))?.is_some() {
                self.opener = Some(End::new(socket, self.plan.seed, self.plan.sizes[0]));
                moved = true;
            } else {
                self.connecting = Some(socket);
            }
        }
        if self.taker.is_none()
            && let Some(listener) = &self.listener
            && let Some((socket, _)) = would_block(listener.accept())?
        {
            self.taker = Some(End::new(socket, !self.plan.seed, self.plan.sizes[1]));
            moved = true;
        }
        for end in self.opener.iter_mut().chain(&mut self.taker) {
            moved |= end.step()?;
        }
        Ok(moved)
    }

    /// Another thread waits for the listener's end, perhaps, whose shard this is.
    pub fn move_to_shard(&self, shard: usize) {
        if let Some(end) = &self.taker {
            end.socket.move_to_shard(shard);
        }
    }

    /// One of the two stacks ends: its sockets are closed.
    pub fn end(&mut self, stack: usize) {
        if (stack == 0) == self.plan.from_first {
            (self.connecting, self.opener) = (None, None);
        } else {
            (self.listener, self.taker) = (None, None);
        }
    }

    /// A step of what is left after [`Self::end`]; `None`: an error ended it, or it has nothing to wait for.
    pub fn step_alone(&mut self) -> Option<bool> {
        let waits = self.connecting.is_some()
            || self.listener.is_some() && self.taker.is_none()
            || self.opener.iter().chain(&self.taker).any(|e| !e.is_done());
        if waits { self.step().ok() } else { None }
    }

    pub fn is_done(&self) -> bool {
        self.opener
            .iter()
            .chain(&self.taker)
            .filter(|e| e.is_done())
            .count()
            == 2
    }

    /// What each end received, if it is what the other sent.
    pub fn sums(&mut self) -> Result<[Sum; 2], String> {
        let (Some(opener), Some(taker)) = (&mut self.opener, &mut self.taker) else {
            return Err(format!("{:?} was never open", self.plan));
        };
        let got = [
            opener.sum.finalize_reset().into(),
            taker.sum.finalize_reset().into(),
        ];
        if got != [taker.expected(), opener.expected()] {
            let received = [opener.received, taker.received];
            return Err(format!(
                "{:?}: other bytes arrived ({received:?} of them)",
                self.plan
            ));
        }
        Ok(got)
    }

    /// Where it stands, for the message of a run that got stuck.
    pub fn status(&self) -> String {
        let end = |e: &Option<End>| match e {
            None => "not open".to_owned(),
            Some(e) => format!(
                "sent {}/{} received {} shut {} ended {} {:?}",
                e.sent,
                e.outgoing.len(),
                e.received,
                e.shut,
                e.ended,
                e.socket.readiness()
            ),
        };
        format!(
            "{:?}: opener {}; taker {}",
            self.plan,
            end(&self.opener),
            end(&self.taker)
        )
    }
}

/// Makes the stacks find each other; no datagram that counts is so short.
const WARM_UP: [u8; 3] = [0; 3];

/// Datagrams one way, each with its number and bytes that follow from it.
pub struct Datagrams {
    plan: DatagramPlan,
    target: SocketAddr,
    sender: Socket,
    receiver: Socket,
    sent: usize,
    /// Nothing that counts is sent before: a stack may drop what waits for a neighbour's address, beyond a few packets.
    begin: Instant,
    warm: bool,
    /// How often each arrived.
    pub arrived: Vec<usize>,
}

impl Datagrams {
    pub fn new(
        plan: &DatagramPlan,
        client: &Net,
        server: &Net,
        target: SocketAddr,
        begin: Instant,
    ) -> io::Result<Self> {
        let receiver = Socket::new(server, domain(plan.v6), Kind::Datagram)?;
        receiver.bind(target)?;
        let sender = Socket::new(client, domain(plan.v6), Kind::Datagram)?;
        let arrived = vec![0; plan.count];
        Ok(Self {
            plan: plan.clone(),
            target,
            sender,
            receiver,
            sent: 0,
            begin,
            warm: false,
            arrived,
        })
    }

    /// Datagram number `i`: at most what fits into the smallest packet.
    fn content(&self, i: usize) -> Vec<u8> {
        let mut random = Random::new(self.plan.seed ^ (i as u64).rotate_left(32));
        let mut bytes = vec![0; 4 + random.below(1_200)];
        random.fill(&mut bytes);
        let number = u32::try_from(i).expect("few datagrams");
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub fn step(&mut self, now: Instant) -> Result<bool, String> {
        let mut moved = false;
        if !self.warm {
            let sent = self
                .sender
                .send(&[IoSlice::new(&WARM_UP)], Some(self.target));
            self.warm = would_block(sent)
                .map_err(|e| format!("{:?}: {e}", self.plan))?
                .is_some();
        }
        if self.sent < self.plan.count && now >= self.begin {
            let bytes = self.content(self.sent);
            let sent = would_block(self.sender.send(&[IoSlice::new(&bytes)], Some(self.target)));
            if let Some(n) = sent.map_err(|e| format!("{:?}: send: {e}", self.plan))? {
                if n != bytes.len() {
                    return Err(format!(
                        "{:?}: {n} of a datagram of {} sent",
                        self.plan,
                        bytes.len()
                    ));
                }
                self.sent += 1;
                moved = true;
            }
        }
        let mut buffer = [0; 2048];
        let got = would_block(
            self.receiver
                .receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default()),
        );
        if let Some(got) = got.map_err(|e| format!("{:?}: receive: {e}", self.plan))? {
            self.look_at(&buffer[..got.len])?;
            moved = true;
        }
        Ok(moved)
    }

    fn look_at(&mut self, bytes: &[u8]) -> Result<(), String> {
        if *bytes == WARM_UP {
            return Ok(());
        }
        let number = bytes.first_chunk().map(|b| u32::from_le_bytes(*b));
        let number = number
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n < self.sent);
        match number {
            Some(n) if bytes == self.content(n) => self.arrived[n] += 1,
            _ => {
                return Err(format!(
                    "{:?}: a datagram arrived that was not sent",
                    self.plan
                ));
            }
        }
        Ok(())
    }

    pub fn all_sent(&self) -> bool {
        self.sent == self.plan.count
    }
}
