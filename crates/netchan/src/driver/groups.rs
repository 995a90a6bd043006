//! The groups that interfaces are in, for whoever has a packet to or from one: looked at without a lock where there are none, which
//! is almost always. An interface's transmitting half writes it ([`Interface`](crate::driver::interface::Interface)).

use std::{
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use percore::lock::{Mutex, mutex};
use proto::membership::Filter;

use crate::locks;

/// Groups by address, with what is let in.
type Table = Vec<(IpAddr, Filter)>;

/// The groups of all interfaces.
pub struct Groups {
    count: AtomicUsize,
    tables: Mutex<Vec<Table>>,
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Groups {
    /// None, for so many interfaces.
    pub fn new(interfaces: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            tables: mutex(&locks::GROUPS, vec![Vec::new(); interfaces]),
        }
    }

    /// Whether anyone on `interface` is in `group`.
    #[inline]
    pub fn is_member(&self, interface: u8, group: IpAddr) -> bool {
        // Relaxed: a hint; who has just joined has not been answered yet.
        self.count.load(Relaxed) > 0 && self.find(interface, group, |_| true)
    }

    /// Whether anyone on `interface` wants to hear `source` in `group`.
    pub fn takes(&self, interface: u8, group: IpAddr, source: IpAddr) -> bool {
        self.find(interface, group, |filter| filter.hears(source))
    }

    #[cold]
    fn find(&self, interface: u8, group: IpAddr, is: impl FnOnce(&Filter) -> bool) -> bool {
        let tables = self.tables.lock();
        let Some(table) = tables.get(usize::from(interface)) else {
            return false;
        };
        match table.binary_search_by_key(&group, |entry| entry.0) {
            Ok(at) => is(&table[at].1),
            Err(_) => false,
        }
    }

    /// What `interface` lets in of `group` now.
    pub fn set(&self, interface: u8, group: IpAddr, filter: &Filter) {
        let mut tables = self.tables.lock();
        let Some(table) = tables.get_mut(usize::from(interface)) else {
            return;
        };
        match table.binary_search_by_key(&group, |entry| entry.0) {
            Ok(at) if filter.is_nobody() => {
                table.remove(at);
            }
            Ok(at) => table[at].1.clone_from(filter),
            Err(_) if filter.is_nobody() => {}
            Err(at) => table.insert(at, (group, filter.clone())),
        }
        // Relaxed: as in `is_member`.
        self.count.store(tables.iter().map(Vec::len).sum(), Relaxed);
    }

    /// The groups of an interface, for `netchan show`.
    pub fn of(&self, interface: usize) -> Vec<(IpAddr, Filter)> {
        self.tables
            .lock()
            .get(interface)
            .cloned()
            .unwrap_or_default()
    }
}
