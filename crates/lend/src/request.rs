//! One request and its answer: what is lent, and what is refused with which reason.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use netchan::{
    LeaseSize, PacketProtocol, PairEnd,
    link::lease::{
        Answer, Binding, FILES, MESSAGE_MAX, Membership, PortRange, Request, Reuse, Terms, VERSION,
    },
    own::Own,
};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

use serde::Serialize;

use super::{peer::Peer, refusals::Kind, rules::Rules};

/// Characters of a reason.
pub const WHY_MAX: usize = 512;

/// What the thread asks of the rest of the program.
pub trait Lender: Send + 'static {
    /// What it lends.
    type Lease: Lease;

    /// The names of its links.
    fn links(&self) -> Vec<String>;

    /// Leases of one program, of different links.
    type Set;

    /// Lends a part of a link to a program, of a `user`, beside others of it.
    ///
    /// # Errors
    /// Why not.
    fn lend(
        &self,
        beside: Option<&Self::Set>,
        link: &str,
        holder: &str,
        user: u32,
        size: LeaseSize,
    ) -> io::Result<Self::Lease>;

    /// Those that a lease stands beside, where one of `link` may come.
    fn set(&self, lease: &Self::Lease, link: &str) -> Option<Self::Set>;

    /// The process at the other end of `socket`.
    ///
    /// # Errors
    /// The system's.
    fn peer(&self, socket: BorrowedFd<'_>) -> io::Result<Peer>;

    /// Whether it runs the file at `program`.
    ///
    /// # Errors
    /// The system's, where that cannot be seen.
    fn runs(&self, peer: &Peer, program: &Path) -> io::Result<bool>;
}

/// A part of a link that is lent. It ends when it is dropped.
pub trait Lease: Send {
    /// What the application is told.
    fn terms(&self) -> Terms;
    /// What it gets with that.
    fn files(&self) -> [BorrowedFd<'_>; FILES];
    /// A port; an errno.
    fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32>;
    /// Nothing new is to come to a port; these connections stay there, too.
    fn close(&self, binding: Binding, others: &[(SocketAddr, SocketAddr)]);
    /// A port goes back.
    fn give_back(&self, binding: Binding);
    /// Its connections were closed in order: their peers hear nothing when it ends.
    fn over(&self);
    /// The packets of an IP protocol number; an errno.
    fn packets(&self, protocol: u8) -> Result<(), i32>;
    /// The frames of an EtherType; an errno.
    fn frames(&self, kind: u16) -> Result<(), i32>;
    /// The loopback addresses, too; an errno.
    fn share_loopback(&self) -> Result<(), i32>;
    /// Whether it shares them.
    fn has_loopback(&self) -> bool;
    /// What its application hears of a group; an errno.
    fn join(&self, membership: &Membership) -> Result<(), i32>;
    /// The same where it hears less.
    fn leave(&self, membership: &Membership);
    /// More ports for sockets that name none; an errno.
    fn more_ports(&self) -> Result<Vec<PortRange>, i32>;
    /// The memory that it may come to take, bytes.
    fn memory(&self) -> u64;
    /// Its number; never another one's.
    fn number(&self) -> u64;
    /// All its ports.
    fn ports(&self) -> (Vec<Binding>, Vec<PortRange>);
    /// Where its application wishes for short cuts, and is told of them.
    fn news(&self) -> BorrowedFd<'_>;
    /// Wakes the application for what it was told.
    fn ring(&self);
    /// A short cut to another lease's application.
    ///
    /// # Errors
    /// The system's.
    fn pair(&self, other: &Self, number: u64) -> io::Result<[PairEnd; 2]>;
    /// What comes for its ports is the lender's from now on. The peers of its connections hear of its end when it is dropped.
    fn silence(&self);
}

/// A client.
pub struct Connection<L> {
    // Before the socket: when the client sees the end, its lease has ended.
    pub lease: Option<L>,
    pub socket: Own,
    pub peer: Peer,
    pub name: String,
    /// When it is closed, if it has no lease by then.
    pub until_ns: u64,
    /// Its application has closed the socket on which it could wish for short cuts.
    pub is_mute: bool,
    pub wishes: Wishes,
}

/// How often an application has wished for short cuts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    since_ns: u64,
    count: u32,
}

/// Wishes of a second that are heeded: each is a look through the leases. What an application sends is bounded likewise.
const WISHES_MAX: u32 = 64;
const SECOND_NS: u64 = 1_000_000_000;

impl Wishes {
    /// Counts one; false: there were too many.
    pub const fn is_one_more(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.since_ns) >= SECOND_NS {
            (self.since_ns, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= WISHES_MAX
    }
}

/// Why a request is refused.
pub struct Refusal {
    pub kind: Kind,
    pub errno: i32,
    pub why: String,
    /// Whether the connection is closed.
    pub ends: bool,
}

impl Refusal {
    pub fn of(kind: Kind, errno: i32, why: impl Into<String>) -> Self {
        let why: String = why.into();
        let why = why.chars().take(WHY_MAX).collect();
        Self {
            kind,
            errno,
            why,
            ends: false,
        }
    }

    pub fn nonsense(why: impl Into<String>) -> Self {
        Self::of(Kind::Nonsense, libc::EPROTO, why).and_end()
    }

    /// By an errno alone.
    fn system(kind: Kind, errno: i32) -> Self {
        let why = Errno::from_raw_os_error(errno);
        Self::of(kind, errno, why.to_string())
    }

    fn and_end(self) -> Self {
        Self { ends: true, ..self }
    }

    pub fn answer(&self) -> Answer {
        Answer::Refused {
            errno: self.errno,
            why: self.why.clone(),
        }
    }
}

/// What leases there are already, where one more is asked for.
pub struct Others<S> {
    /// Those of other links that the program has.
    pub beside: Option<S>,
    /// The memory that those of its user may take, bytes.
    pub memory: u64,
}

impl<S> Default for Others<S> {
    fn default() -> Self {
        Self {
            beside: None,
            memory: 0,
        }
    }
}

/// Does what is asked for, if it may be. `None`: there is no answer to it.
///
/// # Errors
/// Why not.
pub fn answer<L: Lender>(
    lender: &L,
    rules: &Rules,
    connection: &mut Connection<L::Lease>,
    others: &Others<L::Set>,
    request: &Request,
) -> Result<Option<Answer>, Refusal> {
    let Some(lease) = &connection.lease else {
        return attach(lender, rules, connection, others, request).map(Some);
    };
    let answer = match request {
        Request::Links { .. } | Request::Attach { .. } => {
            let why = "this connection has a lease already";
            return Err(Refusal::of(Kind::Lease, libc::EISCONN, why));
        }
        Request::Terms => Answer::Terms(Box::new(lease.terms())),
        Request::Bind(binding, reuse) => {
            may_bind(lender, rules, &connection.peer, binding)?;
            done(lease.bind(*binding, *reuse))?
        }
        Request::Leave(binding) => {
            lease.close(*binding, &[]);
            Answer::Done
        }
        Request::Close(binding, others) => {
            lease.close(*binding, others);
            return Ok(None);
        }
        Request::Return(binding) => {
            lease.give_back(*binding);
            return Ok(None);
        }
        Request::Over => {
            lease.over();
            return Ok(None);
        }
        Request::Packets(protocol) => {
            let of = PacketProtocol::Ip(*protocol);
            may_have_packets(lender, rules, &connection.peer, of)?;
            done(lease.packets(*protocol))?
        }
        Request::Frames(kind) => {
            let of = PacketProtocol::EtherType(*kind);
            may_have_packets(lender, rules, &connection.peer, of)?;
            done(lease.frames(*kind))?
        }
        Request::Loopback => done(lease.share_loopback())?,
        Request::Join(membership) => done(lease.join(membership))?,
        Request::Drop(membership) => {
            lease.leave(membership);
            return Ok(None);
        }
        Request::MorePorts => {
            let more = lease.more_ports();
            let more = more.map_err(|errno| Refusal::system(Kind::Port, errno))?;
            Answer::Ports(more)
        }
    };
    Ok(Some(answer))
}

/// A request on a connection without a lease.
fn attach<L: Lender>(
    lender: &L,
    rules: &Rules,
    connection: &mut Connection<L::Lease>,
    others: &Others<L::Set>,
    request: &Request,
) -> Result<Answer, Refusal> {
    let (Request::Attach {
        version, secret, ..
    }
    | Request::Links { version, secret }) = request
    else {
        return Err(Refusal::nonsense("the first request is for a lease"));
    };
    if *version != VERSION {
        let why = format!("version {version} of leases is asked for; this daemon speaks {VERSION}");
        return Err(Refusal::of(Kind::Lease, libc::EPROTONOSUPPORT, why).and_end());
    }
    if !rules.admit(secret) {
        let why = "it is of none of this program's processes";
        return Err(Refusal::of(Kind::Lease, libc::EACCES, why).and_end());
    }
    let Request::Attach { link, memory, .. } = request else {
        return Ok(Answer::Links(lender.links()));
    };
    let user = connection.peer.user;
    let size = (rules.size(user, others.memory, *memory))
        .map_err(|why| Refusal::of(Kind::TooMany, libc::EDQUOT, why).and_end())?;
    let lent = lender.lend(others.beside.as_ref(), link, &connection.name, user, size);
    let lease = lent.map_err(|e| Refusal::of(Kind::Lease, errno(&e), e.to_string()).and_end())?;
    let terms = lease.terms();
    connection.lease = Some(lease);
    Ok(Answer::Terms(Box::new(terms)))
}

/// The answer to what was given, or not.
fn done(given: Result<(), i32>) -> Result<Answer, Refusal> {
    given.map_err(|errno| Refusal::system(Kind::Port, errno))?;
    Ok(Answer::Done)
}

/// Whether the rules give the port.
fn may_bind<L: Lender>(
    lender: &L,
    rules: &Rules,
    peer: &Peer,
    binding: &Binding,
) -> Result<(), Refusal> {
    let port = binding.address.port();
    if port == 0 {
        return Err(Refusal::of(Kind::Port, libc::EINVAL, "port 0 is none"));
    }
    let mut blind = None;
    let runs = |program: &Path| lender.runs(peer, program);
    if rules.allow(peer, binding, runs, &mut blind) {
        return Ok(());
    }
    Err(is_roots(&format!("port {port} is"), peer, blind))
}

/// The same of the packets of an IP protocol number, or the frames of an EtherType.
fn may_have_packets<L: Lender>(
    lender: &L,
    rules: &Rules,
    peer: &Peer,
    protocol: PacketProtocol,
) -> Result<(), Refusal> {
    let mut blind = None;
    let runs = |program: &Path| lender.runs(peer, program);
    if rules.allow_packets(peer, protocol, runs, &mut blind) {
        return Ok(());
    }
    let what = match protocol {
        PacketProtocol::Ip(number) => format!("packets of IP protocol {number} are"),
        PacketProtocol::EtherType(kind) => format!("frames of EtherType {kind:#06x} are"),
    };
    Err(is_roots(&what, peer, blind))
}

fn is_roots(what: &str, peer: &Peer, blind: Option<String>) -> Refusal {
    let blind = blind.map_or_else(String::new, |why| format!(" ({why})"));
    let why = format!(
        "{what} root's, and no [[lease]] of the daemon's configuration gives it to user {}{blind}",
        peer.user
    );
    Refusal::of(Kind::Port, libc::EACCES, why)
}

/// What an application takes for it.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => libc::ENODEV,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::QuotaExceeded => libc::EDQUOT,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

/// Sends a message, at once or not at all.
///
/// # Errors
/// The system's; `AGAIN` where the client has not read those before, `MSGSIZE` where there is more than a message holds.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    if text.len() > MESSAGE_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::MSGSIZE);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, flags).map(drop)
}
