//! A short cut between two leases of one link: memory and sockets for two applications, none of which stays here (`docs/decisions/0023-short-cuts.md`).
//!
//! The lender makes it, tells each of the two which ports the other one has, and takes no further part. It holds all short cuts back while something of its
//! own has to see each packet ([`Watched`]); an application, likewise, its connections' pipes.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use netchan_base::descriptor::{Descriptor, Return};
use percore::{
    edge::{self, EdgeLayout},
    lock::{Mutex, mutex},
    own::Own,
    pipe::{Pipes, PipesLayout},
    slab::{BorrowedSlab, SharedLayout},
};
use rustix::io::fcntl_dupfd_cloexec;

use super::{LeaseCore, lease::PACKET_MAX};
use crate::{
    limits,
    link::lease::{PEER_FILES, PeerPorts, PeerTerms, PipeTable},
    locks,
};

/// One application's part of a short cut, to be passed on.
#[derive(Debug)]
pub struct PairEnd {
    number: u64,
    is_maker: bool,
    layout: SharedLayout,
    edge: EdgeLayout,
    pipes: PipesLayout,
    files: [Own; PEER_FILES],
}

impl PairEnd {
    /// Both ends of a new short cut.
    ///
    /// # Errors
    /// The system's: no memory, no descriptors.
    pub fn both(number: u64) -> io::Result<[Self; 2]> {
        let invalid = |_| io::ErrorKind::InvalidInput;
        let buffers = u32::try_from(limits::PAIR_BUFFERS).map_err(invalid)?;
        let bytes = u32::try_from(PACKET_MAX).map_err(invalid)?;
        let layout = SharedLayout::new(buffers, bytes)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let edge = EdgeLayout::new(buffers).ok_or(io::ErrorKind::InvalidInput)?;
        let [forth, back] = [
            BorrowedSlab::between(layout)?,
            BorrowedSlab::between(layout)?,
        ];
        let (memory, [one, other]) =
            edge::between::<[u8; Descriptor::ENCODED], [u8; Return::ENCODED]>(edge)?;
        let pipes = PipesLayout::new(limits::PAIR_PIPES, limits::PIPE_BYTES);
        let pipes = pipes.ok_or(io::ErrorKind::InvalidInput)?;
        let streams = Pipes::between(pipes)?;
        let copy = |file: &Own| Own::open(|| Ok(fcntl_dupfd_cloexec(file, 0)?));
        let end = |is_maker, files| Self {
            number,
            is_maker,
            layout,
            edge,
            pipes,
            files,
        };
        let shared = [&back, &forth, &memory, &streams];
        let [inward, outward, edge_file, pipes_file] = shared.map(copy);
        let ours = [inward?, outward?, edge_file?, one, pipes_file?];
        let theirs = [forth, back, memory, other, streams];
        Ok([end(true, ours), end(false, theirs)])
    }

    /// What the application is told, with the ports of the other one.
    pub fn terms(&self, ports: PeerPorts) -> PeerTerms {
        PeerTerms {
            pair: self.number,
            is_maker: self.is_maker,
            inward: self.layout.encode(),
            outward: self.layout.encode(),
            slots: self.edge.slots(),
            pipes: [self.pipes.slots(), self.pipes.bytes()],
            ports,
        }
    }

    /// In the order in which they are passed on.
    pub fn files(&self) -> [BorrowedFd<'_>; PEER_FILES] {
        self.files.each_ref().map(AsFd::as_fd)
    }
}

/// What has to see each packet, and the leases that are told to hold their short cuts back as long as there is such a thing.
#[derive(Debug)]
pub struct Watched(Mutex<Watchers>);

#[derive(Debug, Default)]
struct Watchers {
    count: usize,
    leases: Vec<Arc<LeaseCore>>,
    /// Where this stack's own connections get pipes to other leases.
    tables: Vec<Arc<PipeTable>>,
}

impl Default for Watched {
    fn default() -> Self {
        Self(mutex(&locks::WATCHED, Watchers::default()))
    }
}

impl Watched {
    /// Something has to see each packet that is sent from now on, until the value is dropped.
    pub fn watch(self: &Arc<Self>) -> Watcher {
        self.change(1);
        Watcher(self.clone())
    }

    fn change(&self, by: isize) {
        let mut all = self.0.lock();
        let before = all.count > 0;
        all.count = all.count.saturating_add_signed(by);
        let now = all.count > 0;
        if before != now {
            all.leases.iter().for_each(|lease| lease.hold(now));
            all.tables.iter().for_each(|table| table.watch(now));
        }
    }

    /// One more lease.
    pub fn add(&self, lease: Arc<LeaseCore>) {
        let mut all = self.0.lock();
        lease.hold(all.count > 0);
        all.leases.push(lease);
    }

    /// One more lease of this stack's own.
    pub fn add_table(&self, table: Arc<PipeTable>) {
        let mut all = self.0.lock();
        table.watch(all.count > 0);
        all.tables.push(table);
    }

    /// A lease has ended.
    pub fn remove(&self, number: u64) {
        self.0.lock().leases.retain(|lease| lease.number != number);
    }
}

/// Something that has to see each packet.
#[derive(Debug)]
pub struct Watcher(Arc<Watched>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.change(-1);
    }
}
