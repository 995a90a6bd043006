//! The groups that the sockets of a lease are in: put together for the lender, which hears of each change.

use std::{collections::BTreeMap, net::IpAddr};

use proto::membership::Filter;

use super::terms::Membership;

/// The groups of a lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(BTreeMap<IpAddr, Group>);

/// One of them.
#[derive(Clone, Debug)]
struct Group {
    /// What each socket, by its number, hears.
    sockets: Vec<(u64, Filter)>,
    /// What the lender knows.
    told: Membership,
}

impl Group {
    fn none(group: IpAddr) -> Self {
        Self {
            sockets: Vec::new(),
            told: Membership::of(group, &Filter::NO_SOURCE),
        }
    }

    /// What the sockets hear together.
    fn merged(&self, group: IpAddr) -> Membership {
        let filters = self.sockets.iter().map(|(_, filter)| filter);
        Membership::of(group, &Filter::merge(filters))
    }
}

impl Groups {
    /// A socket hears this of a group from now on; one that admits no source leaves it. What the lender has to be told, if anything, and then is
    /// [`told`](Self::told).
    pub fn set(&mut self, socket: u64, group: IpAddr, filter: &Filter) -> Option<Membership> {
        let entry = self.0.entry(group).or_insert_with(|| Group::none(group));
        entry.sockets.retain(|(number, _)| *number != socket);
        if !filter.admits_none() {
            entry.sockets.push((socket, filter.clone()));
        }
        let wanted = entry.merged(group);
        let is_new = wanted != entry.told;
        self.tidy(group);
        is_new.then_some(wanted)
    }

    /// What a socket hears of a group, to be put back where the lender refuses another wish.
    pub fn of(&self, socket: u64, group: IpAddr) -> Filter {
        let entry = self.0.get(&group).into_iter();
        let mut sockets = entry.flat_map(|entry| &entry.sockets);
        let there = sockets.find(|(number, _)| *number == socket);
        there.map_or(Filter::NO_SOURCE, |(_, filter)| filter.clone())
    }

    /// The lender knows this.
    pub fn told(&mut self, membership: Membership) {
        let group = membership.group;
        let entry = self.0.entry(group).or_insert_with(|| Group::none(group));
        entry.told = membership;
        self.tidy(group);
    }

    /// What it does not know yet.
    pub fn untold(&self) -> Vec<Membership> {
        let all = self.0.iter();
        let wanted = all.map(|(&group, entry)| (entry.merged(group), &entry.told));
        wanted
            .filter(|(wanted, told)| wanted != *told)
            .map(|(wanted, _)| wanted)
            .collect()
    }

    /// Forgets a group of which all is said.
    fn tidy(&mut self, group: IpAddr) {
        let nothing = Membership::of(group, &Filter::NO_SOURCE);
        let is_spent = |entry: &Group| entry.sockets.is_empty() && entry.told == nothing;
        if self.0.get(&group).is_some_and(is_spent) {
            self.0.remove(&group);
        }
    }
}
