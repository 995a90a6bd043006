//! Leases: how a process that owns a link (`netchan daemon`) lends a part of it to an application, which runs the protocols itself.
//!
//! A lease is a pair of shared slabs and an edge ([`percore::edge`]), on which IP packets, and frames of an EtherType that was asked for, cross by name
//! ([`netchan_base::descriptor`]), and a socket on which the application asks for ports ([`Request`]). The lender owns the memory, sees
//! which packets are the lease's, and checks each one that leaves; the application has no neighbours and no other address than the lender's, and the lender
//! writes each frame's header.
//!
//! The far side's half is here: [`LeasedLink`] is a link like others. The lender's half is in `netchan`.

mod client;
mod device;
mod groups;
mod holding;
mod pipes;
mod terms;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

pub use client::{Client, default_path};
pub use device::{LENDER, LeasedLink, Options};
pub use holding::{Holding, covers};
pub use pipes::{Pipe, PipeTable, Stream};
pub use terms::{
    Answer, Binding, Cutting, FILES, FLOWS_MAX, MESSAGE_MAX, Membership, News, PEER_FILES,
    PeerPorts, PeerTerms, PortRange, Request, Reuse, SOURCES_MAX, Terms, Transport, VERSION, Wish,
};

use proto::{ip::address::Address, membership::Filter};

/// What was lent with a link.
pub trait Lease: Send + Sync {
    /// The lender's addresses on it, which it shares with other leases: what is for them goes out by the link all the same.
    fn addresses(&self) -> Vec<Address>;

    /// Asks for a port, at an address of the lender's or at all of one family: once more of it, for one more socket. Waits for the answer, 5 s at most.
    ///
    /// # Errors
    /// An errno, as bind(2) has it: EADDRINUSE, EACCES; ENETDOWN where the lender is gone or silent.
    fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32>;

    /// A listener is about to end. Where it is the last socket of a port that is shared by SO_REUSEPORT, what is new is others' from then on: waits for that as
    /// [`bind`](Self::bind) does.
    fn leave(&self, binding: Binding);

    /// One of the sockets that asked for it is bound no more. Whether it was the last one: then the port is to be [closed](Self::close), and
    /// [given back](Self::give_back) once no connection has it.
    fn unbind(&self, binding: Binding) -> bool;

    /// Tells the lender that nothing new is to come to a port that no socket has. `connections`, our end and the peer's: those that live on there with
    /// other applications of the lender's. Does not wait for it; nothing happens where a socket has the port again.
    fn close(&self, binding: Binding, connections: &[(SocketAddr, SocketAddr)]);

    /// Gives a port back that neither sockets nor connections have, as [`close`](Self::close). False: the lender has to be told later.
    fn give_back(&self, binding: Binding) -> bool;

    /// All connections were closed in order, and their peers have acknowledged that: tells the lender, which lets them be when the lease ends. Does not wait.
    fn over(&self);

    /// Ports that no socket has and that were not given back, and whether they are closed.
    fn unbound(&self) -> Vec<(Binding, bool)>;

    /// Asks for the packets of an IP protocol number, until the lease ends. Waits as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// An errno. EACCES; EADDRINUSE: another lease has them; EINVAL: the lender's own stack speaks it; ENETDOWN.
    fn packets(&self, protocol: u8) -> Result<(), i32>;

    /// Asks for the frames of an EtherType, until the lease ends. Waits as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// As for [`packets`](Self::packets).
    fn frames(&self, kind: u16) -> Result<(), i32>;

    /// Asks for 127.0.0.0/8 and ::1, which it shares with the lender's other leases from then on. Waits as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// An errno. EADDRNOTAVAIL: the lender does not lend them; ENETDOWN.
    fn share_loopback(&self) -> Result<(), i32>;

    /// Whether it shares them.
    fn has_loopback(&self) -> bool;

    /// The ports for sockets that name none: those of the beginning, and what [`more_ports`](Self::more_ports) has added.
    fn ports(&self) -> Vec<PortRange>;

    /// Asks for more of them. Waits as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: there are no more; ENETDOWN.
    fn more_ports(&self) -> Result<(), i32>;

    /// A socket, by its number, hears this of a group from now on: asks for what all of the lease's sockets hear together. Waits as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// An errno, and nothing has changed. ENOBUFS: it is in too many; ENETDOWN.
    fn join_group(&self, socket: u64, group: IpAddr, filter: &Filter) -> Result<(), i32>;

    /// A socket hears nothing of a group any more. Does not wait. False: the lender has to be told later ([`settle_groups`](Self::settle_groups)).
    fn leave_group(&self, socket: u64, group: IpAddr) -> bool;

    /// Tells the lender of groups that were left while it had too much to read. False: it still has.
    fn settle_groups(&self) -> bool;

    /// Where its connections get pipes to other leases.
    fn pipes(&self) -> Arc<PipeTable>;
}
