//! The groups that interfaces are in, for a packet to or from one. An interface's transmitting half changes them
//! ([`Interface`](crate::driver::interface::Interface)).

use std::net::IpAddr;

use proto::membership::Filter;

/// Groups by address, with what is let in.
type Table = Vec<(IpAddr, Filter)>;

/// The groups of all interfaces, by number.
#[derive(Clone, Debug)]
pub struct Groups(Vec<Table>);

impl Groups {
    /// None, for so many interfaces.
    pub fn new(interfaces: usize) -> Self {
        Self(vec![Vec::new(); interfaces])
    }

    /// Whether anyone on `interface` is in `group`.
    #[inline]
    pub fn is_member(&self, interface: u8, group: IpAddr) -> bool {
        self.find(interface, group).is_some()
    }

    /// Whether anyone on `interface` wants to hear `source` in `group`.
    pub fn takes(&self, interface: u8, group: IpAddr, source: IpAddr) -> bool {
        self.find(interface, group)
            .is_some_and(|filter| filter.hears(source))
    }

    fn find(&self, interface: u8, group: IpAddr) -> Option<&Filter> {
        let table = self.0.get(usize::from(interface))?;
        let at = table.binary_search_by_key(&group, |entry| entry.0).ok()?;
        Some(&table[at].1)
    }

    /// What `interface` lets in of `group` from now on.
    pub fn set(&mut self, interface: u8, group: IpAddr, filter: &Filter) {
        let Some(table) = self.0.get_mut(usize::from(interface)) else {
            return;
        };
        match table.binary_search_by_key(&group, |entry| entry.0) {
            Ok(at) if filter.admits_none() => {
                table.remove(at);
            }
            Ok(at) => table[at].1.clone_from(filter),
            Err(_) if filter.admits_none() => {}
            Err(at) => table.insert(at, (group, filter.clone())),
        }
    }

    /// The groups of an interface.
    pub fn of(&self, interface: usize) -> &[(IpAddr, Filter)] {
        self.0.get(interface).map_or(&[], Vec::as_slice)
    }
}
