//! A stream that the program has an end of: bound, listening, connecting, or connected. Or a datagram socket.

use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use libc::c_int;
use netchan::{
    errno_of as code,
    own::Own,
    relay::{Carried, Connection, Datagrams, End, Sides, Turn},
    socket::{Domain, Readiness, Socket},
};

use crate::{
    address,
    caller::Caller,
    pair::{Ends, Filled, Pair, fill, hush},
    sys::{self, Answer, Call, Place},
};

/// Calls that wait at a listener, before the first look for those that were given up: a program that a signal interrupts again and again leaves one each time.
const CALLS: usize = 64;
/// Connections that one turn hands out.
const CONNECTIONS: usize = 32;

/// A stream of the program's.
pub struct Stream {
    /// Where calls come from, and are answered.
    listener: Rc<Own>,
    /// The family it was made for.
    pub domain: Domain,
    /// What is known of our end, but of a connection.
    seen: End,
    state: State,
}

enum State {
    /// It neither listens nor connects.
    Idle(Ends),
    Listening(Listening),
    Connecting(Connecting),
    Connected(Connection<Ends>),
    /// It is none.
    Datagrams(Datagrams<Ends>),
    /// It did not connect, and the program has not heard why.
    Failed(Ends, Option<c_int>),
    /// While it changes.
    Changing,
}

struct Listening {
    ends: Ends,
    /// The program's end is readable.
    is_told: bool,
    /// Accepted, and not handed out: the program had no number for it, or gave the call up.
    kept: VecDeque<(Socket, SocketAddr)>,
    /// accept(2) calls that wait, and some that were given up.
    calls: VecDeque<Call>,
    /// With so many those that were given up are forgotten.
    forget_at: usize,
}

struct Connecting {
    ends: Ends,
    /// connect(2), where it waits.
    call: Option<u64>,
    /// Else the program's end, which is full.
    full: Option<(OwnedFd, Filled)>,
}

impl Sides for Stream {
    fn socket(&self) -> Option<&Socket> {
        self.ends().map(|ends| &ends.socket)
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        self.ends()?.end()
    }
}

impl Carried for Stream {
    fn end_mut(&mut self) -> &mut End {
        match &mut self.state {
            State::Connected(connection) => connection.end_mut(),
            State::Datagrams(datagrams) => datagrams.end_mut(),
            _ => &mut self.seen,
        }
    }

    fn turn(&mut self, room: &mut [u8]) -> io::Result<Turn<(u64, Self)>> {
        match &mut self.state {
            State::Connected(connection) => connection.turn(room),
            State::Datagrams(datagrams) => datagrams.turn(room),
            _ if self.seen.has_hung_up => Ok(Turn::Over),
            State::Listening(_) => Ok(self.hand_out()),
            State::Connecting(_) => Ok(self.look_whether_connected()),
            State::Idle(_) | State::Failed(..) | State::Changing => Ok(Turn::Waits),
        }
    }

    fn wants(&self) -> Readiness {
        match &self.state {
            State::Connected(connection) => connection.wants(),
            State::Datagrams(datagrams) => datagrams.wants(),
            State::Listening(listening) if !listening.is_told => Readiness::READABLE,
            State::Connecting(_) => Readiness::WRITABLE,
            _ => Readiness::NONE,
        }
    }
}

impl Stream {
    /// One that neither listens nor connects.
    pub fn idle(listener: &Rc<Own>, domain: Domain, ends: Ends) -> Self {
        Self::new(listener, domain, State::Idle(ends))
    }

    /// A datagram socket.
    pub fn datagrams(listener: &Rc<Own>, domain: Domain, ends: Ends) -> Self {
        let state = State::Datagrams(Datagrams::new(ends, domain));
        Self::new(listener, domain, state)
    }

    /// Whether it is one.
    pub const fn is_datagrams(&self) -> bool {
        matches!(self.state, State::Datagrams(_))
    }

    fn new(listener: &Rc<Own>, domain: Domain, state: State) -> Self {
        Self {
            listener: listener.clone(),
            domain,
            seen: End::default(),
            state,
        }
    }

    fn ends(&self) -> Option<&Ends> {
        match &self.state {
            State::Idle(ends) | State::Failed(ends, _) => Some(ends),
            State::Listening(listening) => Some(&listening.ends),
            State::Connecting(connecting) => Some(&connecting.ends),
            State::Connected(connection) => Some(connection.sides()),
            State::Datagrams(datagrams) => Some(datagrams.sides()),
            State::Changing => None,
        }
    }

    /// listen(2). Said again it changes the backlog.
    ///
    /// # Errors
    /// The socket's.
    pub fn listen(&mut self, backlog: usize) -> Result<(), c_int> {
        let socket = self.socket().ok_or(libc::EINVAL)?;
        socket.listen(backlog).map_err(|error| code(&error))?;
        self.state = match mem::replace(&mut self.state, State::Changing) {
            State::Idle(ends) => State::Listening(Listening {
                ends,
                is_told: false,
                kept: VecDeque::new(),
                calls: VecDeque::new(),
                forget_at: CALLS,
            }),
            other => other,
        };
        Ok(())
    }

    /// connect(2). `None`: the call waits for its answer.
    pub fn connect(
        &mut self,
        to: SocketAddr,
        call: &Call,
        file: OwnedFd,
        waits: bool,
    ) -> Option<Answer> {
        if !matches!(self.state, State::Idle(_)) {
            return self.connect_again(call, waits);
        }
        let asked = self.socket()?.connect(to);
        match asked.map_err(|error| code(&error)) {
            Ok(()) | Err(libc::EINPROGRESS) => {}
            Err(code) => return Some(Answer::Error(code)),
        }
        let State::Idle(ends) = mem::replace(&mut self.state, State::Changing) else {
            return None;
        };
        let full = match waits {
            true => None,
            false => fill(&file).ok().map(|filled| (file, filled)),
        };
        self.state = State::Connecting(Connecting {
            ends,
            call: waits.then_some(call.id),
            full,
        });
        (!waits).then_some(Answer::Error(libc::EINPROGRESS))
    }

    /// The same of one that connects, or has.
    fn connect_again(&mut self, call: &Call, waits: bool) -> Option<Answer> {
        if let Turn::<()>::Again = self.look_whether_connected()
            && let State::Connected(_) = self.state
        {
            return Some(Answer::Value(0)); // it hears of it by this call
        }
        let listener = self.listener.as_fd();
        let is_free = |before: Option<u64>| before.is_none_or(|id| !sys::still_waits(listener, id));
        let code = match &mut self.state {
            State::Connecting(connecting) if waits && is_free(connecting.call) => {
                connecting.call = Some(call.id);
                return None;
            }
            State::Connecting(_) => libc::EALREADY,
            State::Failed(_, error) => error.take().unwrap_or(libc::ECONNABORTED),
            State::Connected(_) | State::Listening(_) | State::Datagrams(_) => libc::EISCONN,
            State::Idle(_) | State::Changing => libc::ECONNABORTED,
        };
        Some(Answer::Error(code))
    }

    fn look_whether_connected<N>(&mut self) -> Turn<N> {
        let State::Connecting(connecting) = &self.state else {
            return Turn::Waits;
        };
        let outcome = match connecting.ends.socket.connect_again() {
            Some(Err(error)) => code(&error),
            Some(Ok(())) => 0,
            None => libc::ECONNABORTED,
        };
        if matches!(outcome, libc::EINPROGRESS | libc::EALREADY) {
            return Turn::Waits;
        }
        let State::Connecting(Connecting { ends, call, full }) =
            mem::replace(&mut self.state, State::Changing)
        else {
            return Turn::Waits;
        };
        let is_there = matches!(outcome, 0 | libc::EISCONN);
        if !is_there && call.is_none() {
            ends.hang_up();
        }
        if let Some((shared, filled)) = full {
            ends.drain(&shared, filled);
        }
        if let Some(id) = call {
            let answer = match is_there {
                true => Answer::Value(0),
                false => Answer::Error(outcome),
            };
            let _ = sys::answer(self.listener.as_fd(), id, answer); // given up: it asks again
        }
        self.state = match (is_there, call) {
            (true, _) => State::Connected(Connection::new(ends)),
            (false, Some(_)) => State::Idle(ends),
            (false, None) => State::Failed(ends, Some(outcome)),
        };
        Turn::Again
    }

    /// SO_ERROR of one that did not connect; `None`: its socket says.
    pub fn take_error(&mut self) -> Option<c_int> {
        match &mut self.state {
            State::Failed(_, error) => Some(error.take().unwrap_or(0)),
            State::Connecting(_) => Some(0),
            _ => None,
        }
    }

    /// accept(2): `Ok(None)`: the call waits.
    ///
    /// # Errors
    /// The errno that it is answered.
    pub fn accept(
        &mut self,
        call: &Call,
        file: &OwnedFd,
        waits: bool,
    ) -> Result<Option<(u64, Self)>, c_int> {
        let listener = self.listener.clone();
        let domain = self.domain;
        let State::Listening(listening) = &mut self.state else {
            return Err(libc::EINVAL);
        };
        if flags(call) & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(libc::EINVAL);
        }
        let given = match listening
            .calls
            .is_empty()
            .then(|| listening.next())
            .flatten()
        {
            Some(connection) => listening.give(&listener, call, domain, connection),
            None if waits => {
                listening.wait(&listener, call);
                Ok(None)
            }
            None => Err(libc::EAGAIN),
        };
        if listening.is_told && !listening.has_more() {
            hush(file);
            listening.is_told = false;
        }
        given
    }

    /// Answers calls that wait, and tells the program of what is left.
    fn hand_out(&mut self) -> Turn<(u64, Self)> {
        let State::Listening(listening) = &mut self.state else {
            return Turn::Waits;
        };
        let mut streams = Vec::new();
        while streams.len() < CONNECTIONS
            && let Some(call) = listening.calls.front().copied()
        {
            if !sys::still_waits(self.listener.as_fd(), call.id) {
                listening.calls.pop_front();
                continue;
            }
            let Some(connection) = listening.next() else {
                break;
            };
            listening.calls.pop_front();
            match listening.give(&self.listener, &call, self.domain, connection) {
                Ok(given) => streams.extend(given),
                Err(code) => {
                    let _ = sys::answer(self.listener.as_fd(), call.id, Answer::Error(code)); // given up
                }
            }
        }
        if listening.calls.is_empty() && !listening.is_told && listening.has_more() {
            listening.ends.ring();
            listening.is_told = true;
        }
        match streams.is_empty() {
            true => Turn::Waits,
            false => Turn::Accepted(streams),
        }
    }
}

impl Drop for Stream {
    /// The program's end was shut: what waits for it ends, as in a kernel.
    fn drop(&mut self) {
        let (calls, code) = match &mut self.state {
            State::Listening(listening) => {
                let calls = listening.calls.drain(..).map(|call| call.id);
                (calls.collect::<Vec<_>>(), libc::EINVAL)
            }
            State::Connecting(connecting) => {
                let calls = connecting.call.take();
                (calls.into_iter().collect(), libc::ECONNABORTED)
            }
            _ => return,
        };
        for id in calls {
            let _ = sys::answer(self.listener.as_fd(), id, Answer::Error(code)); // given up
        }
    }
}

impl Listening {
    /// The call waits. What was given up is looked for once in as many calls as wait, so that each costs the same.
    fn wait(&mut self, listener: &Own, call: &Call) {
        if self.calls.len() >= self.forget_at {
            let waits = |call: &Call| sys::still_waits(listener.as_fd(), call.id);
            self.calls.retain(waits);
            self.forget_at = (2 * self.calls.len()).max(CALLS);
        }
        self.calls.push_back(*call);
    }

    fn has_more(&self) -> bool {
        !self.kept.is_empty() || self.ends.socket.readiness().contains(Readiness::READABLE)
    }

    fn next(&mut self) -> Option<(Socket, SocketAddr)> {
        let kept = self.kept.pop_front();
        kept.or_else(|| self.ends.socket.accept().ok())
    }

    /// Gives a connection to a call. `Ok(None)`: the call was given up, and the connection is kept.
    fn give(
        &mut self,
        listener: &Rc<Own>,
        call: &Call,
        domain: Domain,
        (socket, peer): (Socket, SocketAddr),
    ) -> Result<Option<(u64, Stream)>, c_int> {
        let flags = flags(call);
        let give = || {
            let pair = Pair::new(flags & libc::SOCK_NONBLOCK != 0).map_err(|e| code(&e))?;
            let caller = Caller::of(listener.as_fd(), call).map_err(|e| code(&e))?;
            if call.pointer(1) != 0 {
                let name = address::write(peer, domain);
                caller.give_back(&name, call.pointer(1), call.pointer(2))?;
            }
            let place = Place::Returned {
                closes: flags & libc::SOCK_CLOEXEC != 0,
            };
            let given = sys::give(listener.as_fd(), call.id, pair.shared.as_fd(), place);
            given.map(|()| pair).map_err(|e| code(&e))
        };
        match give() {
            Ok(pair) => {
                let name = pair.name;
                let (_, ends) = pair.of(socket);
                let connected = State::Connected(Connection::new(ends));
                Ok(Some((name, Stream::new(listener, domain, connected))))
            }
            Err(code) => {
                self.kept.push_front((socket, peer));
                match code {
                    libc::ENOENT => Ok(None),
                    code => Err(code),
                }
            }
        }
    }
}

/// The flags of an accept4(2).
fn flags(call: &Call) -> c_int {
    match call.number == libc::SYS_accept4 {
        true => call.int(3),
        false => 0,
    }
}
