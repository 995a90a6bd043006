//! The thread `netchan-lease`, which answers: one for all clients. It waits for all of them at once and for no one of them.
//!
//! A client is not believed: what it sends is bounded, answered once, and closed where it is nonsense; its user and its process are what the
//! kernel says. One that does not ask in time, or does not read its answers, is closed.
//!
//! A lease ends with its socket. A process that has ended while another has the socket from it (fork) leaves the lease to that one; when none has the
//! socket any more it ends, which is the only sign there is of that. So no process is watched for its end.

use std::{
    collections::HashSet,
    io,
    ops::ControlFlow,
    os::fd::AsFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    time::Duration,
};

use netchan::{
    Clock,
    link::lease::{Answer, Binding, MESSAGE_MAX, Request},
    own::Own,
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    net::{RecvFlags, SocketFlags, accept_with, recv, sockopt::set_socket_send_buffer_size},
};

use super::{
    pairs::Pairs,
    peer::Peer,
    refusals::{Kind, Refusals},
    request::{Connection, Lease, Lender, Others, Refusal, Wishes, answer, send},
    rules::Rules,
};

/// A connection without a lease is closed after so long.
const ATTACH_NS: u64 = 5_000_000_000;
/// Where the system has no descriptors left: until the next try.
const PAUSE_NS: u64 = 100_000_000;
/// Connections accepted before the others have their turn again.
const ACCEPTED_MAX: usize = 64;
/// Requests without an answer of one client that are read before their turn.
const RETURNS_MAX: usize = 64;
/// For answers that the client has not read, bytes: it is charged to the daemon.
const UNREAD_MAX: usize = 2 * MESSAGE_MAX;

/// Nanoseconds on the stack's clock.
fn now_ns() -> u64 {
    Clock::Real.now().0
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In all: as many applications as a large machine runs.
    pub all: usize,
    /// Of one user that is not root; of a program that lends to its own processes, those without a lease.
    pub each: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            all: 4096,
            each: 256,
        }
    }
}

/// Where clients connect: a socket that listens.
pub type Door = Box<dyn AsFd + Send>;

/// What the thread is told.
pub(super) enum Order {
    Rules(Rules),
    Admit(Own),
    EndWithClients,
    Pause,
    Stop,
}

/// How the thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its connections are closed.
    Over,
    /// It leaves all as it is.
    Pause,
}

#[derive(Debug, Default)]
pub(super) struct Ready {
    orders: bool,
    accept: bool,
    /// By number, rising.
    connections: Vec<usize>,
    /// Those whose applications wish for a short cut; by number, too.
    wishes: Vec<usize>,
}

/// What the thread has.
pub(super) struct Server<L: Lender> {
    // First: no client connects to what ends.
    door: Option<Door>,
    pub(super) connections: Vec<Connection<L::Lease>>,
    pairs: Pairs,
    orders: Receiver<Order>,
    wake: Arc<Own>,
    lender: L,
    rules: Rules,
    limits: Limits,
    refusals: Refusals,
    /// There were no descriptors left: nothing is accepted before.
    accept_from_ns: u64,
    ends_with_clients: bool,
    message: Vec<u8>,
}

impl<L: Lender> Server<L> {
    pub(super) fn new(
        door: Option<Door>,
        lender: L,
        rules: Rules,
        limits: Limits,
    ) -> io::Result<(Sender<Order>, Arc<Own>, Self)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(Own::open(|| Ok(eventfd(0, flags)?))?);
        let (sender, orders) = channel();
        let server = Self {
            door,
            connections: Vec::new(),
            pairs: Pairs::default(),
            orders,
            wake: Arc::clone(&wake),
            lender,
            rules,
            limits,
            refusals: Refusals::default(),
            accept_from_ns: 0,
            ends_with_clients: false,
            // One more than there may be: what is longer is seen.
            message: vec![0; MESSAGE_MAX + 1],
        };
        Ok((sender, wake, server))
    }

    pub(super) fn run(&mut self) -> End {
        loop {
            if self.ends_with_clients && self.connections.is_empty() {
                return End::Over;
            }
            let now = now_ns();
            let ready = match self.wait(now, self.timeout(now)) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(e) => {
                    tracing::error!(target: "netchan::daemon", "the thread that answers ends: poll: {e}");
                    return End::Over;
                }
            };
            if let ControlFlow::Break(end) = self.turn(now_ns(), &ready) {
                return end;
            }
        }
    }

    /// How long there is nothing to do by time alone; `None`: for ever.
    fn timeout(&self, now: u64) -> Option<Duration> {
        let waiting = self.connections.iter().filter(|one| one.lease.is_none());
        let closing = waiting.map(|one| one.until_ns).min();
        let accepting = (self.accept_from_ns > now).then_some(self.accept_from_ns);
        let all = [closing, accepting, self.refusals.next_ns()];
        let next = all.into_iter().flatten().min()?;
        // One nanosecond more, so that the time has come when poll returns for it.
        Some(Duration::from_nanos(next.saturating_sub(now) + 1))
    }

    fn wait(&self, now: u64, timeout: Option<Duration>) -> Result<Ready, Errno> {
        let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![on(self.wake.as_fd())];
        fds.extend(self.connections.iter().map(|one| on(one.socket.as_fd())));
        let numbers = self.connections.iter().enumerate();
        let wishing = numbers.filter(|(_, one)| one.lease.is_some() && !one.is_mute);
        let wishing: Vec<usize> = wishing.map(|(number, _)| number).collect();
        let leases = self.connections.iter().filter(|one| !one.is_mute);
        let leases = leases.filter_map(|one| one.lease.as_ref());
        fds.extend(leases.map(|lease| on(lease.news())));
        if let Some(door) = self.door.as_ref().filter(|_| self.accept_from_ns <= now) {
            fds.push(on(door.as_fd()));
        }
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        poll(&mut fds, timeout.as_ref())?;
        let mut is = fds.iter().map(|fd| !fd.revents().is_empty());
        let orders = is.next().unwrap_or_default();
        let mut ready = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut ready = Vec::new();
            for number in numbers {
                if is.next().unwrap_or_default() {
                    ready.push(number);
                }
            }
            ready
        };
        Ok(Ready {
            orders,
            connections: ready(&mut (0..self.connections.len())),
            wishes: ready(&mut wishing.into_iter()),
            accept: is.next().unwrap_or_default(),
        })
    }

    /// One request of each client that has one, and what else is ready.
    fn turn(&mut self, now: u64, ready: &Ready) -> ControlFlow<End> {
        if ready.orders {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            self.obey(now)?;
        }
        for &number in &ready.wishes {
            self.hear(number, now);
        }
        // Backwards: the last one takes the place of one that is closed.
        for &number in ready.connections.iter().rev() {
            if !self.serve(number, now) {
                self.close(number);
            }
        }
        self.expire(now);
        if ready.accept {
            self.accept(now);
        }
        for line in self.refusals.due(now) {
            tell(&line);
        }
        ControlFlow::Continue(())
    }

    /// Reads what the application of a lease wishes.
    fn hear(&mut self, number: usize, now: u64) {
        let Self {
            connections, pairs, ..
        } = self;
        let Some(connection) = connections.get(number) else {
            return;
        };
        let mut wishes = connection.wishes;
        let goes_on = (connection.lease.as_ref())
            .is_some_and(|lease| pairs.hear(connections, lease, || wishes.is_one_more(now)));
        if let Some(connection) = connections.get_mut(number) {
            connection.wishes = wishes;
            connection.is_mute = !goes_on;
        }
    }

    /// Closes a connection. The lender has the ports of its lease first, so that those that had a short cut to it, and hear of the end then, are answered
    /// by it. Its connections' peers are told last: what they answer does not go by a short cut that nothing reads any more.
    fn close(&mut self, number: usize) {
        let mut closed = self.connections.swap_remove(number);
        tracing::debug!(target: "netchan::daemon", "{} has gone", closed.name);
        if let Some(lease) = closed.lease.take() {
            lease.silence();
            (self.pairs).lost(&self.connections, lease.number(), &lease.ports());
            drop(lease);
        }
    }

    fn obey(&mut self, now: u64) -> ControlFlow<End> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Rules(rules)) => self.rules = rules,
                Ok(Order::Admit(client)) => self.admit(now, client),
                Ok(Order::EndWithClients) => self.ends_with_clients = true,
                Ok(Order::Pause) => return ControlFlow::Break(End::Pause),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => {
                    return ControlFlow::Break(End::Over);
                }
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
            }
        }
    }

    /// Reads and answers one request; false when the connection is to be closed.
    fn serve(&mut self, number: usize, now: u64) -> bool {
        let Some(connection) = self.connections.get_mut(number) else {
            return true;
        };
        // Descriptors that come with it are not asked for, so the kernel closes them.
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let message = match recv(&connection.socket, &mut self.message[..], flags) {
            Ok((_, 0)) => return false,
            Ok((read, whole)) if whole <= MESSAGE_MAX => {
                self.message.get(..read).unwrap_or_default()
            }
            Ok((_, whole)) => {
                let why = format!("a request of {whole} bytes; they have at most {MESSAGE_MAX}");
                let refusal = Refusal::nonsense(why);
                return self.refuse(number, now, &refusal);
            }
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        };
        match serde_json::from_slice(message) {
            Ok(request) => self.fulfil(number, now, &request),
            Err(e) => self.refuse(number, now, &Refusal::nonsense(format!("no request: {e}"))),
        }
    }

    /// Does what is asked for, and answers; false when the connection is to be closed.
    fn fulfil(&mut self, number: usize, now: u64, request: &Request) -> bool {
        let begins = (self.connections.get(number)).is_some_and(|one| one.lease.is_none());
        let mut answer = self.answer(number, request);
        if let (Err(refusal), Request::Bind(binding, _)) = (&answer, request)
            && refusal.errno == libc::EADDRINUSE
            && self.hear_returns(number, &binding.canonical())
        {
            answer = self.answer(number, request);
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => return self.refuse(number, now, &refusal),
        };
        // Before the application has its answer, and sends from there.
        self.note_ports(number, request, answer.as_ref());
        let (Some(answer), Some(connection)) = (answer, self.connections.get(number)) else {
            return true;
        };
        let begun = connection.lease.as_ref().filter(|_| begins);
        let files = begun.map(L::Lease::files);
        let sent = send(
            &connection.socket,
            &answer,
            files.as_ref().map_or(&[][..], |files| &files[..]),
        );
        if files.is_some() && sent.is_ok() {
            tracing::debug!(target: "netchan::daemon", "{} has a lease", connection.name);
        }
        self.is_sent(number, now, sent)
    }

    fn answer(&mut self, number: usize, request: &Request) -> Result<Option<Answer>, Refusal> {
        let others = self.others(number, request).unwrap_or_default();
        let connection = self.connections.get_mut(number);
        let connection = connection.ok_or_else(|| Refusal::nonsense("no connection"))?;
        answer(&self.lender, &self.rules, connection, &others, request)
    }

    /// The other leases of a program that asks for one, and of its user.
    fn others(&self, number: usize, request: &Request) -> Option<Others<L::Set>> {
        let Request::Attach { link, .. } = request else {
            return None;
        };
        let peer = &self.connections.get(number)?.peer;
        let leases = |of: &dyn Fn(&Peer) -> bool| {
            let those = self.connections.iter().filter(|other| of(&other.peer));
            those.filter_map(|other| other.lease.as_ref()).collect()
        };
        let own: Vec<_> = leases(&|other| other.is_same_process(peer));
        let users: Vec<_> = leases(&|other| other.user == peer.user);
        Some(Others {
            beside: (own.into_iter()).find_map(|lease| self.lender.set(lease, link)),
            memory: users.into_iter().map(L::Lease::memory).sum(),
        })
    }

    /// What was granted or came back counts for short cuts, too.
    fn note_ports(&mut self, number: usize, request: &Request, answer: Option<&Answer>) {
        let Self {
            connections, pairs, ..
        } = self;
        let lease = connections.get(number).and_then(|one| one.lease.as_ref());
        let Some(lease) = lease.map(L::Lease::number) else {
            return;
        };
        match (request, answer) {
            (Request::Bind(binding, reuse), Some(Answer::Done)) => {
                pairs.bound(connections, (lease, &binding.canonical()), reuse.port);
            }
            (Request::Leave(binding) | Request::Close(binding, _), _) => {
                pairs.closed(lease, &binding.canonical())
            }
            (Request::Return(binding), _) => {
                pairs.unbound(connections, lease, &binding.canonical());
            }
            (Request::MorePorts, Some(Answer::Ports(more))) => {
                pairs.gained(connections, lease, more);
            }
            (Request::Loopback, Some(Answer::Done)) => pairs.gained(connections, lease, &[]),
            (Request::Attach { .. }, Some(Answer::Terms(terms))) => {
                pairs.gained(connections, lease, &terms.ports);
            }
            _ => {}
        }
    }

    /// Reads what the leases that have a port may have said of it, before it is refused to another one: their sockets were ready later, but what they said may be
    /// older than the other one's request. Whether one of them has closed a port or given one back.
    fn hear_returns(&mut self, number: usize, binding: &Binding) -> bool {
        let lease = self
            .connections
            .get(number)
            .and_then(|one| one.lease.as_ref());
        let Some(lease) = lease.map(L::Lease::number) else {
            return false;
        };
        let rivals: HashSet<u64> = self.pairs.rivals(lease, binding).into_iter().collect();
        let mut has_heard = false;
        for number in 0..self.connections.len() {
            let lease = self
                .connections
                .get(number)
                .and_then(|one| one.lease.as_ref());
            if !lease.is_some_and(|lease| rivals.contains(&lease.number())) {
                continue;
            }
            for _ in 0..RETURNS_MAX {
                let Some(request) = self.next_return(number) else {
                    break;
                };
                has_heard = true;
                if let Ok(answer) = self.answer(number, &request) {
                    self.note_ports(number, &request, answer.as_ref());
                }
            }
        }
        has_heard
    }

    /// Takes the next request of a connection, if it is there and has no answer.
    fn next_return(&mut self, number: usize) -> Option<Request> {
        let socket = &self.connections.get(number)?.socket;
        let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let (read, _) = recv(socket, &mut self.message[..], peek).ok()?;
        let request = serde_json::from_slice(self.message.get(..read)?).ok()?;
        if !matches!(
            request,
            Request::Close(..) | Request::Return(_) | Request::Over | Request::Drop(_)
        ) {
            return None;
        }
        recv(socket, &mut self.message[..], RecvFlags::DONTWAIT).ok()?;
        Some(request)
    }

    /// Refuses a request; false when the connection is to be closed.
    fn refuse(&mut self, number: usize, now: u64, refusal: &Refusal) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let (name, user) = (&connection.name, connection.peer.user);
        let line = format!("refused to {name} of user {user}: {}", refusal.why);
        let sent = send(&connection.socket, &refusal.answer(), &[]);
        self.note(refusal.kind, now, line);
        self.is_sent(number, now, sent) && !refusal.ends
    }

    /// Whether an answer has gone; tells why not, unless the client has just gone.
    fn is_sent(&mut self, number: usize, now: u64, sent: Result<(), Errno>) -> bool {
        let name = |of: &Self| {
            of.connections
                .get(number)
                .map_or_else(String::new, |c| c.name.clone())
        };
        match sent {
            Ok(()) => return true,
            Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => {
                let line = format!("{} does not read its answers: closed", name(self));
                self.note(Kind::Silent, now, line);
            }
            Err(e) => {
                let line = format!("cannot answer {}: {e}", name(self));
                self.note(Kind::Lease, now, line);
            }
        }
        false
    }

    /// Closes what has no lease in time.
    fn expire(&mut self, now: u64) {
        let is_late = |one: &Connection<L::Lease>| one.lease.is_none() && one.until_ns <= now;
        while let Some(number) = self.connections.iter().position(is_late) {
            let late = self.connections.swap_remove(number);
            let why = "no request for a lease within 5 s";
            let refusal = Refusal::of(Kind::Silent, libc::ETIMEDOUT, why);
            let _ = send(&late.socket, &refusal.answer(), &[]);
            self.note(refusal.kind, now, format!("{}: {why}: closed", late.name));
        }
    }

    fn accept(&mut self, now: u64) {
        for _ in 0..ACCEPTED_MAX {
            let Some(door) = &self.door else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(door, flags) {
                Ok(socket) => self.admit(now, Own::keep(socket)),
                Err(Errno::AGAIN) => return,
                // The client gave up while it waited.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(e) => {
                    self.accept_from_ns = now.saturating_add(PAUSE_NS);
                    self.note(Kind::TooMany, now, format!("cannot accept a client: {e}"));
                    return;
                }
            }
        }
    }

    fn admit(&mut self, now: u64, socket: Own) {
        let Ok(peer) = self.lender.peer(socket.as_fd()) else {
            return;
        };
        let name = peer.name();
        // Where a lease takes a secret, its user is one of the lender's own.
        let counts = |one: &&Connection<L::Lease>| {
            let is_ours = self.rules.are_free() && one.lease.is_some();
            one.peer.user == peer.user && !is_ours
        };
        let same = self.connections.iter().filter(counts);
        let why = match () {
            () if self.connections.len() >= self.limits.all => {
                Some("there are as many connections as there may be".to_owned())
            }
            () if peer.user != 0 && same.count() >= self.limits.each => Some(format!(
                "user {} has {} connections",
                peer.user, self.limits.each
            )),
            () => None,
        };
        if let Some(why) = why {
            // What it has asked is read: a socket that is closed with something unread tells its peer of a reset, not of this.
            let _ = recv(&socket, &mut self.message[..], RecvFlags::DONTWAIT);
            let refusal = Refusal::of(Kind::TooMany, libc::EUSERS, why);
            let _ = send(&socket, &refusal.answer(), &[]);
            self.note(
                refusal.kind,
                now,
                format!("refused to {name}: {}", refusal.why),
            );
            return;
        }
        let _ = set_socket_send_buffer_size(&socket, UNREAD_MAX);
        self.connections.push(Connection {
            lease: None,
            socket,
            peer,
            name,
            until_ns: now.saturating_add(ATTACH_NS),
            is_mute: false,
            wishes: Wishes::default(),
        });
    }

    fn note(&mut self, kind: Kind, now: u64, line: String) {
        if let Some(line) = self.refusals.note(kind, now, line) {
            tell(&line);
        }
    }
}

fn tell(line: &str) {
    tracing::warn!(target: "netchan::daemon", "{line}");
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
