//! Opening connections: connect(2), the local port, and what a connection begins with.

use std::net::SocketAddr;

use proto::{
    tcp::{self, Connection, ReceiveQueue},
    time::{Duration, Instant},
    wire::{ipv4::Protocol, tcp::SeqNum},
};

use super::{CameBy, Connect, OwnWatermarks, SendQueue, Shard, TcpOptions, TcpSocket, Wakers};
use crate::{
    channel::Request,
    counters::Counter,
    driver::{host::HostView, steer::short},
    emit::{self, IpFields},
    flow::FlowKey,
    packet::{Hint, Packet},
    shard::{Reuse, ports::Kept, time_wait},
    trace,
};

impl Shard {
    /// A new connection in the table and among the flows, under its flow's short hash; full: `None`.
    #[inline(never)]
    pub(in crate::shard) fn insert_tcp(
        &mut self,
        key: &FlowKey,
        hash: u32,
        connection: Connection,
        interface: u8,
        (fields, linger, reuse): (IpFields, Option<Duration>, Reuse),
        listener: Option<u32>,
    ) -> Option<u32> {
        let segmentation = self.host.net.segmentation(interface, key.remote);
        let peer = self.memory.tcp_shares.peer(key.remote);
        let number = self.tcp.insert_with(|| TcpSocket {
            hash,
            connection,
            receive: ReceiveQueue::new(),
            send: SendQueue::default(),
            wakers: Wakers::default(),
            error: None,
            came_by: CameBy::new(listener),
            attached: listener.is_none(),
            detached_flow: false,
            dirty: false,
            read_shut: false,
            urgent_taken: false,
            watermarks: OwnWatermarks::default(),
            send_limit: u32::try_from(self.host.send_buffer).unwrap_or(u32::MAX),
            waits_for_memory: false,
            told_closed: false,
            was_open: false,
            hint: Hint::NONE,
            template: emit::Template::new(key, fields),
            interface,
            hops: 0,
            peer,
            noted: 0,
            records: 0,
            segmentation,
            kept: Kept::new(linger == Some(Duration::ZERO), reuse),
            moves_or_epoch: 0,
            auth: None,
        })?;
        self.bound_own(number);
        self.insert_flow(hash, number);
        self.ports.take(key.local_port);
        self.request(Request::Add, key);
        Some(number)
    }

    /// A connection to an address of our own offers no more than there is place for in the buffers of its kind.
    pub(in crate::shard) fn bound_own(&mut self, number: u32) {
        if let Some(socket) = self.tcp.get_mut(number)
            && self.host.net.is_local(socket.key().remote)
        {
            let share = self.pool.shelf().own_share();
            socket.connection.bound_receive_buffer(share);
        }
    }

    /// Opens a connection: route, local address and port, and the SYN. The number of the connection.
    ///
    /// # Errors
    /// An errno: no route, no link, no free port or table slot, flow taken.
    pub fn tcp_connect(
        &mut self,
        connect: &Connect<'_>,
        may_take: impl Fn(u8, u16) -> Result<bool, i32>,
        now: Instant,
    ) -> Result<u32, i32> {
        let Connect {
            source,
            port,
            remote,
            fast,
            options,
        } = *connect;
        let wish = (options.device, options.mark);
        let peer = self.peers.get(&self.host, remote, source, wish);
        let peer = peer.ok_or(libc::ENETUNREACH)?;
        may_take(peer.interface, port)?;
        let mut key = FlowKey {
            local: peer.source,
            remote: remote.ip(),
            local_port: port,
            remote_port: remote.port(),
            protocol: Protocol::TCP,
        };
        let mut after = None;
        let hash = if port == 0 {
            self.choose_port(&mut key, peer.port_offset, |port| {
                may_take(peer.interface, port).is_ok_and(|may| may)
            })
        } else {
            after = self.end_time_wait(&key);
            self.free_flow(&key)
        };
        let hash = short(hash.ok_or(libc::EADDRNOTAVAIL)?);
        let local = SocketAddr::new(key.local, key.local_port);
        let iss =
            after.unwrap_or_else(|| tcp::initial_sequence(&self.host.secret, local, remote, now));
        let defaults = &self.defaults.config;
        let start = options.start(
            &self.host,
            defaults,
            &key,
            peer.interface,
            (iss, peer.ts_offset),
        );
        let own = options.own.as_deref().map(|own| own.template(defaults));
        let template = own.as_ref().unwrap_or(&self.defaults.template);
        let mut connection = template.active(&start, now);
        self.recall_path(key.remote, &mut connection, now);
        if fast && options.keys.is_none() {
            self.begin_fast_open(&key, options.fast_open, &mut connection, now);
        }
        let kept = (options.fields, options.linger, options.reuse);
        let number = self
            .insert_tcp(&key, hash, connection, peer.interface, kept, None)
            .ok_or(libc::ENOBUFS)?;
        if let Some(keys) = &options.keys {
            self.sign_with(number, keys.auth(local, remote, None));
        }
        self.mark_with(number, options.mark);
        self.tcp_begin_shut(number, options.shut);
        self.count(Counter::ActiveOpens);
        self.tell_ports(trace::TCP_CONNECT, number);
        self.mark_dirty(number);
        Ok(number)
    }

    /// What a connection sends has SO_MARK from now on.
    pub(in crate::shard) fn mark_with(&mut self, number: u32, mark: u32) {
        if let Some(socket) = self.tcp.get_mut(number).filter(|_| mark != 0) {
            socket.set_mark(mark);
        }
    }

    /// A packet of the peer's opened a connection.
    pub(in crate::shard) fn came_with(&mut self, number: u32, packet: &Packet) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.hops = packet.meta.hops;
        }
    }

    /// Gives `key` a local port whose flow is free and whose answers will be steered to this shard; the flow's hash.
    fn choose_port(
        &mut self,
        key: &mut FlowKey,
        offset: u32,
        may_take: impl Fn(u16) -> bool,
    ) -> Option<u64> {
        let mut counter = self.ports.counter;
        let mut hash = None;
        let ports = self.host.ports.clone();
        tcp::ephemeral_port(offset, ports.indexes(), &mut counter, |index| {
            let port = ports.port(index);
            key.local_port = port;
            hash = self.free_flow(key).filter(|&hash| {
                crate::driver::steer::spread(hash, self.shards) == self.number && may_take(port)
            });
            hash.is_some()
        });
        self.ports.counter = counter;
        hash
    }

    /// As Linux, for a port that bind(2) named: a TIME-WAIT with timestamps gives way to a new connection. Where that begins.
    fn end_time_wait(&mut self, key: &FlowKey) -> Option<SeqNum> {
        let found = self.find(short(self.host.flow_hash.hash(key)), key)?;
        let number = time_wait::split(found).err()?;
        let iss = self.time_waits.get(number)?.record.reopens()?;
        self.remove_time_wait(number);
        Some(iss)
    }

    /// The hash of a flow, if it is free.
    fn free_flow(&self, key: &FlowKey) -> Option<u64> {
        let hash = self.host.flow_hash.hash(key);
        self.find(short(hash), key).is_none().then_some(hash)
    }
}

impl TcpOptions {
    /// What a connection of `key` begins with: what fits the MTU, what a silent peer can take (RFC 9293 MUST-15, MUST-67).
    pub(in crate::shard) fn start(
        &self,
        host: &HostView,
        defaults: &tcp::Config,
        key: &FlowKey,
        interface: u8,
        (iss, ts_offset): (SeqNum, u32),
    ) -> tcp::Start {
        let (headers, default_mss) = if key.remote.is_ipv4() {
            (40, 536)
        } else {
            (60, 1220)
        };
        let facts = host.net.interfaces.get(usize::from(interface));
        let mtu = facts.map_or(1500, |i| i.mtu);
        let mss = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX - 40);
        let mss = mss.min(self.max_segment.unwrap_or(u16::MAX));
        tcp::Start {
            local_port: key.local_port,
            remote_port: key.remote_port,
            iss,
            ts_offset,
            mss: mss.max(64),
            default_mss,
            nagle: self.nagle.unwrap_or(defaults.nagle),
            cork: self.cork.unwrap_or(defaults.cork),
            quick_ack: self.quick_ack.unwrap_or(defaults.quick_ack),
            burst: super::burst::text_of(host.net.segmentation(interface, key.remote)),
        }
    }
}
