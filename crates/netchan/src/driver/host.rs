//! What one stack is, for all its sides: facts that never change (keys, limits), and what changes while packets flow ([`Live`]).

use std::{io, ops::Deref, sync::Arc};

use percore::snapshot::{Reading, Snapshot, View};
use proto::{ip::keyed::Seed, tcp};

use crate::{
    assignment::ShardAssignment,
    driver::{groups::Groups, network::Network, settings},
    ephemeral::EphemeralPorts,
    flow::FlowHash,
    moved::Moved,
    tap::Taps,
};

/// One stack, for all its sides; fixed at its start, but for what is in [`Self::live`].
#[derive(Debug)]
pub struct Host {
    /// What changes.
    pub live: Arc<Snapshot<Live>>,
    /// Packets for other hosts are passed on (RFC 1812, RFC 8200); else they are dropped.
    pub forwarding: bool,
    /// SYNs that are passed on offer no longer segments than the links they cross here take.
    pub mss_clamp: bool,
    /// The keyed hash of flows.
    pub flow_hash: FlowHash,
    /// Secret of initial sequence numbers, ports and timestamp offsets (RFC 6528, RFC 6056).
    pub secret: [u8; 16],
    /// Seed of the interfaces' tables.
    pub seed: Seed,
    /// Bytes a stream's send queue holds at most in the beginning.
    pub send_buffer: usize,
    /// What that grows to with the congestion window.
    pub send_buffer_max: usize,
    /// What looks at the links.
    pub taps: Arc<Taps>,
    /// Where sockets live, if each has a shard of its own.
    pub assignment: Option<Arc<ShardAssignment>>,
    /// Connections that live elsewhere than where they came in.
    pub moved: Moved,
}

/// What changes while packets flow: one way from the control plane to each side of the data plane. A change puts another part in the place of
/// one; a side takes all of it at the beginning of its next turn ([`HostView::refresh`]), so that a turn goes by one state of everything.
#[derive(Clone, Debug)]
pub struct Live {
    /// Interfaces with their addresses, and the routes.
    pub net: Arc<Network>,
    /// The multicast groups that interfaces are in.
    pub groups: Arc<Groups>,
    /// What TCP connections start with; MSS and buffers are set for each interface and socket.
    pub tcp: Arc<tcp::Config>,
    /// ICMP errors to others are rate limited.
    pub limits_icmp: bool,
    /// Where the ports of sockets that name none are chosen from.
    pub ports: Arc<EphemeralPorts>,
}

/// The networks as they were at one moment, for a socket call.
#[derive(Debug)]
pub struct NetworkNow<'a>(Reading<'a, Live>);

impl Deref for NetworkNow<'_> {
    type Target = Network;

    #[inline]
    fn deref(&self) -> &Network {
        &self.0.net
    }
}

impl Host {
    /// The networks as they are now: for a socket call, which has no view of its own.
    #[inline]
    pub fn network(&self) -> NetworkNow<'_> {
        NetworkNow(self.live.read())
    }

    /// What TCP connections start with now.
    pub fn tcp(&self) -> tcp::Config {
        *self.live.read().tcp
    }

    /// Changes the networks.
    ///
    /// # Errors
    /// `change`'s; then nothing has changed.
    pub fn change_network<E>(
        &self,
        change: impl FnOnce(&mut Network) -> Result<(), E>,
    ) -> Result<(), E> {
        (self.live).try_update(|live| change(Arc::make_mut(&mut live.net)))
    }

    /// Changes the groups.
    pub fn change_groups(&self, change: impl FnOnce(&mut Groups)) {
        (self.live).update(|live| change(Arc::make_mut(&mut live.groups)));
    }

    /// Changes what TCP connections start with.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: one of those that belong to memory reserved at the start, or to an interface.
    pub fn change_tcp(&self, change: impl FnOnce(&mut tcp::Config)) -> io::Result<()> {
        self.live.try_update(|live| {
            let before = *live.tcp;
            let now = Arc::make_mut(&mut live.tcp);
            change(now);
            settings::check_change(&before, now)
        })
    }

    /// Whether ICMP errors to others are rate limited now.
    pub fn limits_icmp(&self) -> bool {
        self.live.read().limits_icmp
    }

    /// Changes that.
    pub fn limit_icmp(&self, limited: bool) {
        (self.live).update(|live| live.limits_icmp = limited);
    }

    /// What one side of the stack keeps.
    pub fn view(self: &Arc<Self>) -> HostView {
        let view = self.live.view();
        HostView {
            net: view.net.clone(),
            groups: view.groups.clone(),
            tcp: view.tcp.clone(),
            limits_icmp: view.limits_icmp,
            ports: view.ports.clone(),
            view,
            host: self.clone(),
        }
    }
}

/// One side's hold on its [`Host`]: what changes changes for it only when it says so.
#[derive(Clone, Debug)]
pub struct HostView {
    /// The networks, as at the last [`Self::refresh`], and so the others.
    pub net: Arc<Network>,
    /// The groups.
    pub groups: Arc<Groups>,
    /// What TCP connections start with.
    pub tcp: Arc<tcp::Config>,
    /// Whether ICMP errors to others are rate limited.
    pub limits_icmp: bool,
    /// Where ports are chosen from.
    pub ports: Arc<EphemeralPorts>,
    view: View<Live>,
    host: Arc<Host>,
}

impl Deref for HostView {
    type Target = Host;

    #[inline(always)]
    fn deref(&self) -> &Host {
        &self.host
    }
}

impl HostView {
    /// Takes everything as it is now. What was there before, if anything has changed: what was derived from it has to go.
    #[inline(always)]
    pub fn refresh(&mut self) -> Option<Arc<Live>> {
        let before = self.view.refresh()?;
        self.take();
        Some(before)
    }

    #[cold]
    fn take(&mut self) {
        self.net.clone_from(&self.view.net);
        self.groups.clone_from(&self.view.groups);
        self.tcp.clone_from(&self.view.tcp);
        self.limits_icmp = self.view.limits_icmp;
        self.ports.clone_from(&self.view.ports);
    }
}
