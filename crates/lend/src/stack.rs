//! The stack, as the thread that answers sees it.

use std::{io, net::SocketAddr, os::fd::BorrowedFd, path::Path};

use netchan::{
    LeaseSet, LeaseSize, Lent, Net, PairEnd,
    link::lease::{Binding, FILES, Membership, PortRange, Reuse, Terms},
};

use super::{
    peer::Peer,
    request::{Lease, Lender},
};

/// A stack.
pub struct Stack(pub Net);

impl Lender for Stack {
    type Lease = Lent;

    type Set = LeaseSet;

    fn links(&self) -> Vec<String> {
        self.0.lendable()
    }

    fn lend(
        &self,
        beside: Option<&LeaseSet>,
        link: &str,
        holder: &str,
        user: u32,
        size: LeaseSize,
    ) -> io::Result<Lent> {
        self.0.lend_beside(beside, link, holder, user, size)
    }

    fn set(&self, lease: &Lent, link: &str) -> Option<LeaseSet> {
        Some(lease.set()).filter(|set| set.has_room_for(link))
    }

    fn peer(&self, socket: BorrowedFd<'_>) -> io::Result<Peer> {
        Peer::of(socket)
    }

    fn runs(&self, peer: &Peer, program: &Path) -> io::Result<bool> {
        peer.runs(program)
    }
}

impl Lease for Lent {
    fn terms(&self) -> Terms {
        Self::terms(self)
    }

    fn files(&self) -> [BorrowedFd<'_>; FILES] {
        Self::files(self)
    }

    fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32> {
        Self::bind(self, binding, reuse)
    }

    fn close(&self, binding: Binding, others: &[(SocketAddr, SocketAddr)]) {
        Self::close(self, binding, others);
    }

    fn give_back(&self, binding: Binding) {
        Self::give_back(self, binding);
    }

    fn over(&self) {
        Self::over(self);
    }

    fn packets(&self, protocol: u8) -> Result<(), i32> {
        Self::packets(self, protocol)
    }

    fn frames(&self, kind: u16) -> Result<(), i32> {
        Self::frames(self, kind)
    }

    fn share_loopback(&self) -> Result<(), i32> {
        Self::share_loopback(self)
    }

    fn has_loopback(&self) -> bool {
        Self::has_loopback(self)
    }

    fn join(&self, membership: &Membership) -> Result<(), i32> {
        Self::join(self, membership)
    }

    fn leave(&self, membership: &Membership) {
        Self::leave(self, membership);
    }

    fn more_ports(&self) -> Result<Vec<PortRange>, i32> {
        Self::more_ports(self)
    }

    fn memory(&self) -> u64 {
        Self::memory(self)
    }

    fn number(&self) -> u64 {
        Self::number(self)
    }

    fn ports(&self) -> (Vec<Binding>, Vec<PortRange>) {
        Self::ports(self)
    }

    fn news(&self) -> BorrowedFd<'_> {
        Self::news(self)
    }

    fn ring(&self) {
        Self::ring(self);
    }

    fn pair(&self, other: &Self, number: u64) -> io::Result<[PairEnd; 2]> {
        Self::pair(self, other, number)
    }

    fn silence(&self) {
        Self::silence(self);
    }
}
