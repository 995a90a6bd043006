//! What each call is answered.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use libc::c_int;
use netchan::{
    Net,
    environment::Kernels,
    errno_of as code,
    own::Own,
    relay::{
        Relay, Sides as _,
        letter::CAN_WRITE,
        name::{Name, Role},
    },
    socket::{
        Domain, Kind, Socket,
        options::{CallerOption, Get, Setting, find, parse, refusal},
    },
};
use rustix::{
    fs::OFlags,
    net::{
        AddressFamily, SocketType, getsockname, ipproto,
        sockopt::{self, Timeout},
    },
};

use crate::{
    address,
    caller::Caller,
    pair::Pair,
    stream::Stream,
    sys::{self, Answer, Call, Place},
};

/// Sockets whose options are kept until it is decided which stack serves them, and options of each: those beyond are forgotten.
const NOTED_SOCKETS: usize = 4_096;
const NOTED_OPTIONS: usize = 64;
/// Bytes of an option that are looked at.
const OPTION_MAX: usize = 4_096;

/// What answers the calls of a program and all that it starts.
pub struct Desk {
    net: Net,
    kernels: Kernels,
    listener: Rc<Own>,
    /// The streams of netchan's, by the names of the program's ends.
    pub relay: Relay<Stream>,
    /// Options of the kernel's sockets that are not decided yet.
    noted: HashMap<u64, Vec<Setting>>,
    /// Their names, the oldest first.
    noted_order: VecDeque<u64>,
}

/// A socket that a call names.
struct Named {
    caller: Caller,
    file: OwnedFd,
    name: u64,
}

/// An answer, or none yet.
type Reply = Result<Option<Answer>, c_int>;

const KERNEL: Reply = Ok(Some(Answer::Kernel));
const DONE: Reply = Ok(Some(Answer::Value(0)));

impl Desk {
    /// One without streams.
    ///
    /// # Errors
    /// The system's.
    pub fn new(net: Net, kernels: Kernels, listener: Own) -> io::Result<Self> {
        Ok(Self {
            relay: Relay::new(&net)?,
            net,
            kernels,
            listener: Rc::new(listener),
            noted: HashMap::new(),
            noted_order: VecDeque::new(),
        })
    }

    /// What asks.
    pub fn listener(&self) -> &Own {
        &self.listener
    }

    /// Takes one call, and answers it or keeps it.
    pub fn serve(&mut self) {
        let Ok(call) = sys::receive(self.listener.as_fd()) else {
            return; // it was given up
        };
        let answer = match self.reply(&call) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(code) => Answer::Error(code),
        };
        let _ = sys::answer(self.listener.as_fd(), call.id, answer); // given up
    }

    fn reply(&mut self, call: &Call) -> Reply {
        // What cannot be looked into is the kernel's: a set-user-ID program, a number that is none.
        let Ok(named) = self.named(call) else {
            return KERNEL;
        };
        if self.relay.get_mut(named.name).is_some() {
            return self.reply_of_ours(call, &named);
        }
        let Some((domain, kind)) = kind_of(&named.file) else {
            return KERNEL;
        };
        if kind == Kind::Datagram {
            return self.reply_of_datagrams(call, &named, domain);
        }
        match call.number {
            libc::SYS_setsockopt => {
                self.note(call, &named);
                KERNEL
            }
            libc::SYS_bind => match named.caller.address(call) {
                Ok(Some(to)) if self.kernels.leave_to(&self.net, to) => {
                    self.take_over(call, &named, (domain, kind), |socket| socket.bind(to))?;
                    DONE
                }
                _ => KERNEL, // which says what is wrong with it
            },
            libc::SYS_connect => match named.caller.address(call) {
                Ok(Some(to)) if !self.kernels.has_peer(to.ip()) && !is_bound(&named.file) => {
                    let fresh = self.take_over(call, &named, (domain, kind), |_| Ok(()))?;
                    self.connect(call, &fresh, to)
                }
                _ => KERNEL,
            },
            libc::SYS_listen if !is_bound(&named.file) => {
                let fresh = self.take_over(call, &named, (domain, kind), |_| Ok(()))?;
                self.reply_of_ours(call, &fresh)
            }
            _ => KERNEL,
        }
    }

    /// Of a datagram socket that is the kernel's as yet. It stays so where the program has no library that puts heads before datagrams.
    fn reply_of_datagrams(&mut self, call: &Call, named: &Named, domain: Domain) -> Reply {
        let what = (domain, Kind::Datagram);
        let can_write = call.pointer(3) == CAN_WRITE;
        match call.number {
            libc::SYS_setsockopt => {
                self.note(call, named);
                KERNEL
            }
            libc::SYS_bind if can_write => match named.caller.address(call) {
                Ok(Some(to)) if self.kernels.leave_to(&self.net, to) => {
                    self.take_over(call, named, what, |socket| socket.bind(to))?;
                    DONE
                }
                _ => KERNEL,
            },
            libc::SYS_connect if can_write => match named.caller.address(call) {
                Ok(Some(to)) if !self.kernels.has_peer(to.ip()) && !is_bound(&named.file) => {
                    self.take_over(call, named, what, |socket| socket.connect(to))?;
                    DONE
                }
                _ => KERNEL,
            },
            _ => KERNEL,
        }
    }

    fn named(&self, call: &Call) -> io::Result<Named> {
        let caller = Caller::of(self.listener.as_fd(), call)?;
        let file = caller.file(call.int(0))?;
        let name = sockopt::socket_cookie(&file)?;
        Ok(Named { caller, file, name })
    }

    fn reply_of_ours(&mut self, call: &Call, named: &Named) -> Reply {
        let Some(stream) = self.relay.get_mut(named.name) else {
            return KERNEL;
        };
        let socket = stream.socket().ok_or(libc::EINVAL)?;
        match call.number {
            // The name of the end says what it stands for.
            libc::SYS_getsockname | libc::SYS_getpeername if stream.is_datagrams() => KERNEL,
            libc::SYS_bind => {
                let to = named.caller.address(call)?.ok_or(libc::EAFNOSUPPORT)?;
                socket.bind(to).map_err(|error| code(&error))?;
                DONE
            }
            libc::SYS_listen => {
                let backlog = usize::try_from(call.int(1)).unwrap_or(usize::MAX);
                stream.listen(backlog)?;
                self.relay.look_at(named.name);
                DONE
            }
            libc::SYS_connect => {
                let to = named.caller.address(call)?.ok_or(libc::EAFNOSUPPORT)?;
                self.connect(call, named, to)
            }
            libc::SYS_accept | libc::SYS_accept4 => self.accept(call, named),
            libc::SYS_getsockname => {
                let local = address::write(socket.local_address(), stream.domain);
                (named.caller).give_back(&local, call.pointer(1), call.pointer(2))?;
                DONE
            }
            libc::SYS_getpeername => {
                let peer = socket.peer_address().map_err(|error| code(&error))?;
                let peer = address::write(peer, stream.domain);
                (named.caller).give_back(&peer, call.pointer(1), call.pointer(2))?;
                DONE
            }
            libc::SYS_setsockopt => {
                let (level, name) = (call.int(1), call.int(2));
                match parse(level, name, &option(call, &named.caller)?) {
                    // It is about calls, which are the kernel's.
                    Ok(Setting::Caller(_)) => KERNEL,
                    Ok(setting) => {
                        setting.apply(socket).map_err(|error| code(&error))?;
                        DONE
                    }
                    Err(error) => Err(code(&error)),
                }
            }
            _ => get_option(stream, call, &named.caller),
        }
    }

    fn connect(&mut self, call: &Call, named: &Named, to: SocketAddr) -> Reply {
        let waits = !named.caller.flags(call.int(0)).contains(OFlags::NONBLOCK);
        let stream = self.relay.get_mut(named.name).ok_or(libc::EINVAL)?;
        let file = named.file.try_clone().map_err(|error| code(&error))?;
        let answer = stream.connect(to, call, file, waits);
        self.relay.look_at(named.name);
        Ok(answer)
    }

    fn accept(&mut self, call: &Call, named: &Named) -> Reply {
        let waits = !named.caller.flags(call.int(0)).contains(OFlags::NONBLOCK);
        let stream = self.relay.get_mut(named.name).ok_or(libc::EINVAL)?;
        let accepted = stream.accept(call, &named.file, waits);
        self.relay.look_at(named.name);
        if let Some((name, stream)) = accepted? {
            let _ = self.relay.add(name, stream); // without memory it is closed
        }
        Ok(None)
    }

    /// The socket becomes netchan's, once `first` is done with it: the program's number is our pair's from now on.
    fn take_over(
        &mut self,
        call: &Call,
        named: &Named,
        (domain, kind): (Domain, Kind),
        first: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> Result<Named, c_int> {
        let failed = |error: io::Error| code(&error);
        let socket = Socket::new(&self.net, domain, kind).map_err(failed)?;
        for setting in self.noted.get(&named.name).into_iter().flatten() {
            let _ = setting.apply(&socket); // what the kernel has refused ours may refuse, too
        }
        first(&socket).map_err(failed)?;
        let flags = named.caller.flags(call.int(0));
        let nonblocking = flags.contains(OFlags::NONBLOCK);
        let pair = match kind {
            Kind::Stream => Pair::new(nonblocking),
            Kind::Datagram | Kind::Ping => Pair::of_messages(nonblocking),
        };
        let pair = pair.map_err(failed)?;
        let name = pair.name;
        if kind != Kind::Stream {
            let asked = self.asked(named.name);
            let name = datagrams_name(&socket, domain, name, asked);
            pair.call(&name).map_err(failed)?;
        }
        let (shared, ends) = pair.of(socket);
        keep_timeouts(&named.file, &shared);
        let place = Place::At {
            fd: call.int(0),
            closes: flags.contains(OFlags::CLOEXEC),
        };
        sys::give(self.listener.as_fd(), call.id, shared.as_fd(), place).map_err(failed)?;
        self.noted.remove(&named.name);
        let stream = match kind {
            Kind::Stream => Stream::idle(&self.listener, domain, ends),
            Kind::Datagram | Kind::Ping => Stream::datagrams(&self.listener, domain, ends),
        };
        self.relay.add(name, stream).map_err(failed)?;
        Ok(Named {
            caller: Caller::of(self.listener.as_fd(), call).map_err(failed)?,
            file: shared,
            name,
        })
    }

    /// What recvmsg(2) shall tell, as bits.
    fn asked(&self, name: u64) -> u32 {
        let mut asked = 0;
        for setting in self.noted.get(&name).into_iter().flatten() {
            if let Setting::Caller(CallerOption::Flag(flag, on)) = setting {
                let bit = 1 << *flag as u32;
                asked = if *on { asked | bit } else { asked & !bit };
            }
        }
        asked
    }

    /// An option of a socket that is not decided yet: netchan's will have it, too, if it comes to that.
    fn note(&mut self, call: &Call, named: &Named) {
        let value = option(call, &named.caller).ok();
        let setting = value.and_then(|value| parse(call.int(1), call.int(2), &value).ok());
        let is_kept = |setting: &Setting| match setting {
            // What recvmsg(2) tells, which the name of the end says.
            Setting::Caller(option) => matches!(option, CallerOption::Flag(..)),
            _ => true,
        };
        let Some(setting) = setting.filter(is_kept) else {
            return;
        };
        if !self.noted.contains_key(&named.name) {
            if self.noted_order.len() >= NOTED_SOCKETS
                && let Some(oldest) = self.noted_order.pop_front()
            {
                self.noted.remove(&oldest);
            }
            self.noted_order.push_back(named.name);
        }
        let noted = self.noted.entry(named.name).or_default();
        if noted.len() < NOTED_OPTIONS {
            noted.push(setting);
        }
    }
}

/// What the end of a datagram socket is called.
fn datagrams_name(socket: &Socket, domain: Domain, number: u64, asked: u32) -> Name {
    Name {
        role: Role::Datagrams,
        domain,
        number,
        local: socket.local_address(),
        peer: socket
            .peer_address()
            .unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        asked,
    }
}

/// The family and the kind of a kernel's TCP or UDP socket; `None`: it is something else.
fn kind_of(file: &OwnedFd) -> Option<(Domain, Kind)> {
    let domain = match sockopt::socket_domain(file).ok()? {
        AddressFamily::INET => Domain::V4,
        AddressFamily::INET6 => Domain::V6,
        _ => return None,
    };
    let kind = match sockopt::socket_type(file).ok()? {
        SocketType::STREAM => Kind::Stream,
        SocketType::DGRAM if sockopt::socket_protocol(file).ok()? == Some(ipproto::UDP) => {
            Kind::Datagram
        }
        _ => return None,
    };
    Some((domain, kind))
}

/// How long reads and writes wait is what it was.
fn keep_timeouts(before: &OwnedFd, now: &OwnedFd) {
    for which in [Timeout::Recv, Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(before, which) {
            let _ = sockopt::set_socket_timeout(now, which, Some(time)); // what one took the other does
        }
    }
}

/// Whether the kernel has bound a socket: then it was decided.
fn is_bound(file: &OwnedFd) -> bool {
    let bound = getsockname(file).ok();
    let bound = bound.and_then(|address| SocketAddr::try_from(address).ok());
    bound.is_some_and(|address| address.port() != 0)
}

/// The value of an option that a call sets.
fn option(call: &Call, caller: &Caller) -> Result<Vec<u8>, c_int> {
    let len = usize::try_from(call.int(4)).map_err(|_| libc::EINVAL)?;
    caller.read(call.pointer(3), len.min(OPTION_MAX))
}

fn get_option(stream: &mut Stream, call: &Call, caller: &Caller) -> Reply {
    let (level, name) = (call.int(1), call.int(2));
    let room = caller.room(call.pointer(4))?;
    let error = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => stream.take_error(),
        _ => None,
    };
    let socket = stream.socket().ok_or(libc::EINVAL)?;
    let answer = match (error, find(level, name).map(|row| &row.get)) {
        (Some(error), _) => error.to_ne_bytes().to_vec(),
        (None, None) => return Err(refusal(level, name)),
        (None, Some(Get::By(answer))) => {
            let value = answer(socket).map_err(|error| code(&error))?;
            value.bytes(level, room)
        }
        (None, Some(Get::Within(answer))) => answer(socket, room).map_err(|error| code(&error))?,
        // It is about calls, which are the kernel's.
        (None, Some(Get::Caller(_))) => return KERNEL,
        (None, Some(Get::No | Get::Filter(_) | Get::Keys)) => return Err(libc::ENOPROTOOPT),
    };
    let answer = answer.get(..room).unwrap_or(&answer);
    caller.give_back(answer, call.pointer(3), call.pointer(4))?;
    DONE
}
