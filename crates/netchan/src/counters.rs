//! What a stack counts: traffic, and every drop with its reason.

use percore::counter::PerCore;

use crate::trace::trigger;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A counter of the stack; its name and meaning are what `netchan show counters` prints.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])* $variant,)* }

        impl Counter {
            /// All of them, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// Its name in `netchan show counters`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            /// What it counts, in English.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

// A macro, because the enum, its names and its meanings must not drift apart.
counters! {
    /// Frames taken from links.
    FramesIn = "frames_in",
    /// Frames given to links.
    FramesOut = "frames_out",
    /// TCP segments taken in.
    TcpIn = "tcp_segments_in",
    /// TCP segments taken by what the one before them in their burst had shown: all of a run but the first.
    TcpFollowed = "tcp_segments_followed",
    /// TCP segments sent.
    TcpOut = "tcp_segments_out",
    /// UDP datagrams taken in.
    UdpIn = "udp_datagrams_in",
    /// UDP datagrams sent.
    UdpOut = "udp_datagrams_out",
    /// ICMP and ICMPv6 messages taken in.
    IcmpIn = "icmp_in",
    /// ICMP and ICMPv6 messages sent.
    IcmpOut = "icmp_out",
    /// IGMP and MLD messages taken in.
    MembershipIn = "membership_in",
    /// IGMP and MLD messages sent.
    MembershipOut = "membership_out",
    /// Packets taken in for packet channels.
    PacketChannelIn = "packet_channel_in",
    /// Packets sent by packet channels.
    PacketChannelOut = "packet_channel_out",
    /// Packets given to applications that have leases.
    LeaseIn = "lease_in",
    /// Packets of such applications that passed the check.
    LeaseOut = "lease_out",
    /// Descriptors of such applications that cannot be (names that cannot: `netchan show leases`).
    LeaseNonsense = "lease_nonsense",
    /// ARP packets taken in.
    ArpIn = "arp_in",
    /// Connections opened by us.
    ActiveOpens = "tcp_active_opens",
    /// Connections accepted by a listener.
    PassiveOpens = "tcp_passive_opens",
    /// Moves of connections to the shard of the thread that waits for them.
    TcpMoved = "tcp_moved",
    /// Segments, and ICMP errors about segments, that came to the shard where their connection had been, and were passed on to where it is: each counts twice as taken in.
    TcpPassedOn = "tcp_passed_on",
    /// Connections to other programs of a daemon whose text goes past TCP, counted by each side that sends some.
    TcpPiped = "tcp_piped",
    /// Such connections that were reset: the other side broke the rules of their pipes.
    TcpPipesBroken = "tcp_pipes_broken",
    /// SYNs answered with a cookie instead of being kept (RFC 4987).
    SynCookies = "tcp_syn_cookies_sent",
    /// Connections opened by an ACK that brought a cookie back.
    SynCookiesTaken = "tcp_syn_cookies_taken",
    /// SYNs of ours whose text the peer took (Linux's TCPFastOpenActive; RFC 7413).
    FastOpenActive = "tcp_fast_open_active",
    /// SYNs of ours whose text the peer did not take, or not whole (TCPFastOpenActiveFail).
    FastOpenActiveFails = "tcp_fast_open_active_fail",
    /// Connections that a listener took with the text of their SYN (TCPFastOpenPassive).
    FastOpenPassive = "tcp_fast_open_passive",
    /// SYNs with a cookie that is not ours (TCPFastOpenPassiveFail).
    FastOpenPassiveFails = "tcp_fast_open_passive_fail",
    /// Cookies that were good by the key before (TCPFastOpenPassiveAltKey).
    FastOpenPreviousKey = "tcp_fast_open_passive_alt_key",
    /// SYNs that asked for a cookie (TCPFastOpenCookieReqd).
    FastOpenCookieRequests = "tcp_fast_open_cookie_reqd",
    /// SYNs whose text was left because too many such handshakes of the listener were not over (TCPFastOpenListenOverflow).
    FastOpenOverflows = "tcp_fast_open_listen_overflow",
    /// How often clients stopped to send text in SYNs, because such connections got no answer (TCPFastOpenBlackhole).
    FastOpenBlackHoles = "tcp_fast_open_blackhole",
    /// Segments sent again, SYNs and probes included (tcpRetransSegs, RFC 4022).
    Retransmits = "tcp_retransmits",
    /// RST segments sent.
    ResetsOut = "tcp_resets_out",
    /// Fragments taken in.
    FragmentsIn = "fragments_in",
    /// Packets for other hosts that were passed on.
    Forwarded = "forwarded",
    /// Another host on the link uses one of our addresses.
    AddressConflict = "address_conflicts",
    /// Drop: not an Ethernet frame, or cut short.
    DropEthernet = "drop_ethernet",
    /// Drop: for another station's MAC address.
    DropNotForUs = "drop_other_mac",
    /// Drop: an EtherType that is not served, and that no packet channel has.
    DropEtherType = "drop_ethertype",
    /// Drop: an ARP packet that breaks the rules.
    DropArp = "drop_arp",
    /// Drop: an IP header with impossible lengths, version or options.
    DropIpHeader = "drop_ip_header",
    /// Drop: wrong IPv4 header checksum.
    DropIpChecksum = "drop_ip_checksum",
    /// Drop: a source address that no host may use.
    DropIpSource = "drop_ip_source",
    /// Drop: a destination address that is not ours; where we forward, one that no router passes on.
    DropIpDestination = "drop_ip_destination",
    /// Drop: TCP, or a fragment for one of our own addresses, in a broadcast or multicast frame (RFC 1122 §3.3.6, §4.2.3.10).
    DropLinkGroup = "drop_link_group",
    /// Drop: IPv4 options that are wrong (answered with ICMP parameter problem), or a source route that does not end here.
    DropIpOptions = "drop_ip_options",
    /// Drop: a packet for another host that has no hop left (answered with ICMP time exceeded).
    DropForwardHops = "drop_forward_hops",
    /// Drop: a packet for another host with a source route, or with options that are wrong.
    DropForwardOptions = "drop_forward_options",
    /// Drop: a packet for another host that is too long for the next link and must not be cut (answered with its MTU).
    DropForwardTooBig = "drop_forward_too_big",
    /// Drop: a packet for another host while the channel to the next link is full, or too few receive buffers are left.
    DropForwardQueue = "drop_forward_queue_full",
    /// Drop: an upper protocol that is not served, and that no packet channel has.
    DropProtocol = "drop_ip_protocol",
    /// Drop: IPv6 extension headers against RFC 8200.
    DropExtension = "drop_ip_extension",
    /// Drop: a fragment that cannot be used.
    DropFragment = "drop_ip_fragment",
    /// Drop: an IGMP or MLD message that breaks the rules, or that RFC 9776 and RFC 9777 want ignored.
    DropMembership = "drop_membership",
    /// Drop: an ICMP message that breaks the rules, or is about nothing that this host sent.
    DropIcmp = "drop_icmp",
    /// Drop: a neighbor discovery message that breaks RFC 4861.
    DropNdp = "drop_ndp",
    /// Drop: a TCP header with impossible lengths or options.
    DropTcpHeader = "drop_tcp_header",
    /// Drop: wrong TCP checksum.
    DropTcpChecksum = "drop_tcp_checksum",
    /// Drop: a segment that is not signed as its connection or listener asks, or is signed though neither asks (RFC 2385).
    DropTcpSignature = "drop_tcp_signature",
    /// Segments that verified with a key of TCP-AO (RFC 5925; Linux: TCPAOGood).
    TcpAoGood = "tcp_ao_good",
    /// Drop: a segment without TCP-AO where there is a key for its peer, or one is asked for (Linux: TCPAORequired).
    DropTcpAoRequired = "drop_tcp_ao_required",
    /// Drop: a segment that names a key of TCP-AO that its peer does not have (Linux: TCPAOKeyNotFound).
    DropTcpAoKeyNotFound = "drop_tcp_ao_key_not_found",
    /// Drop: a segment whose code of TCP-AO is wrong (Linux: TCPAOBad).
    DropTcpAoBad = "drop_tcp_ao_bad",
    /// Drop: an ICMP error about a connection with TCP-AO (RFC 5925 §7.8; Linux: TCPAODroppedIcmps).
    DropTcpAoIcmp = "drop_tcp_ao_icmp",
    /// Drop: a segment for no connection and no listener (answered with RST).
    DropTcpNoSocket = "drop_tcp_no_socket",
    /// Drop: a segment, or a connection not accepted yet, for a listener that a forked child was to serve, which cannot (answered with RST).
    DropTcpUnserved = "drop_tcp_listener_unserved",
    /// Drop: a segment or its text that the connection's rules refuse (sequence, ACK, PAWS, duplicate text).
    DropTcpUnacceptable = "drop_tcp_unacceptable",
    /// Drop: a SYN while the listener's SYN queue is full.
    DropSynQueue = "drop_tcp_syn_queue_full",
    /// Drop: an ACK to a listener that sends SYN cookies, with none of ours or one too old (answered with RST).
    DropSynCookie = "drop_tcp_syn_cookie",
    /// Drop: a handshake's begin or end while the listener's accept queue is full.
    DropAcceptQueue = "drop_tcp_accept_queue_full",
    /// Drop: a SYN while the connection table is full.
    DropConnectionTable = "drop_tcp_table_full",
    /// Drop: text that no receive memory is left for.
    DropTcpMemory = "drop_tcp_memory",
    /// Drop: text while all TCP sockets together hold as much memory as they may.
    DropTcpLimit = "drop_tcp_memory_limit",
    /// Drop: text for a TCP socket that holds as much memory as one may.
    DropTcpSocketShare = "drop_tcp_socket_share",
    /// Drop: text from a peer whose TCP sockets together hold as much memory as one peer's may.
    DropTcpPeerShare = "drop_tcp_peer_share",
    /// Drop: TCP segments that had come behind a gap, given up again to make room for text in order. The peer sends them again (RFC 2018 §8).
    DropTcpPruned = "drop_tcp_pruned",
    /// Drop: a UDP header with an impossible length.
    DropUdpHeader = "drop_udp_header",
    /// Drop: wrong UDP checksum.
    DropUdpChecksum = "drop_udp_checksum",
    /// Drop: a datagram for no socket.
    DropUdpNoSocket = "drop_udp_no_socket",
    /// Drop: a datagram while its socket's queue is full.
    DropUdpQueue = "drop_udp_queue_full",
    /// Drop: an echo reply with an identifier that no ping socket of its address has.
    DropPingNoSocket = "drop_ping_no_socket",
    /// Drop: an echo reply while its ping socket's queue is full.
    DropPingQueue = "drop_ping_queue_full",
    /// Drop: a datagram to a group for one more of its members, for which no buffer was left.
    DropUdpCopy = "drop_udp_group_copy",
    /// Drop: a datagram, or an echo reply, while all UDP and ping sockets together hold as much memory as they may.
    DropUdpLimit = "drop_udp_memory_limit",
    /// Drop: a datagram, or an echo reply, for a socket that holds as much memory as one may.
    DropUdpSocketShare = "drop_udp_socket_share",
    /// Drop: a datagram, or an echo reply, from a peer whose datagrams together hold as much memory as one peer's may.
    DropUdpPeerShare = "drop_udp_peer_share",
    /// Drop: an ICMP error about a datagram, or a time stamp of one that was sent, while its socket's error queue is full.
    DropUdpErrorQueue = "drop_udp_error_queue_full",
    /// Drop: what a process wrote for a socket that several hold, and what was no datagram, or one that cannot be sent.
    DropUdpShared = "drop_udp_of_processes",
    /// Drop: a time stamp of a stream's send while its error queue is full.
    DropNotice = "drop_tcp_error_queue_full",
    /// Drop: a packet for a packet channel whose ring from the link is full.
    DropPacketChannelFull = "drop_packet_channel_full",
    /// Drop: a packet for a packet channel while less than a quarter of the buffers that it came in are free.
    DropPacketChannelBuffers = "drop_packet_channel_buffers",
    /// Drop: a packet for an application with a lease that has left no buffer for it.
    DropLeaseFull = "drop_lease_full",
    /// Drop: a copy of what an application with a lease sent to a group, for members on this host, while too many of its packets are on their way.
    DropLeaseCopy = "drop_lease_copy",
    /// Drop: the shard's channel from the link is full.
    DropChannelFull = "drop_channel_full",
    /// Drop: another thread holds the shard, and the link's part of its backlog is full.
    DropBacklogFull = "drop_backlog_full",
    /// Drop on the way out: the link's queue is full.
    DropLinkQueue = "drop_link_queue_full",
    /// Drop on the way out: the packet is not what its sender's lease allows.
    DropCheck = "drop_transmit_check",
    /// Drop on the way out: no route to the destination, or its link is gone.
    DropNoRoute = "drop_no_route",
    /// Drop on the way out: the next hop's link address could not be found.
    DropNeighbor = "drop_neighbor_unresolved",
    /// Put off: packets for a shard that another thread held, left to the holder in the shard's backlog.
    Backlogged = "backlog_packets",
    /// Put off: no transmit buffer was free.
    NoTransmitBuffer = "no_transmit_buffer",
    /// Text that a link would have taken uncut, and that was cut into ordinary packets, since no large transmit buffer was free.
    NoLargeBuffer = "no_large_transmit_buffer",
    /// Put off: a flow that found the flow table full, or that is another shard's; it is found by its hash alone.
    FlowTableFull = "flow_table_full",
}

const N: usize = Counter::ALL.len();

impl Counter {
    /// Whether it is a reason for which packets are dropped.
    #[inline(always)]
    pub const fn is_drop(self) -> bool {
        DROPS[self as usize]
    }

    /// Whether that is found by the frame header, which the packet still begins with.
    pub const fn is_of_frames(self) -> bool {
        matches!(
            self,
            Self::DropEthernet | Self::DropNotForUs | Self::DropEtherType
        )
    }
}

/// Which of them are: those whose names begin so. Made when this is compiled.
const DROPS: [bool; N] = {
    let (mut drops, mut i) = ([false; N], 0);
    while i < N {
        drops[i] = matches!(
            Counter::ALL[i].name().as_bytes(),
            [b'd', b'r', b'o', b'p', b'_', ..]
        );
        i += 1;
    }
    drops
};

/// The counters of one stack: a slot for each writer.
#[derive(Debug)]
pub struct Counters(PerCore<N>);

impl Counters {
    /// Counters for `writers` shards and interfaces.
    pub fn new(writers: usize) -> Self {
        Self(PerCore::new(writers))
    }
    /// Adds; `writer` is the caller's own slot.
    #[inline]
    pub fn add(&self, writer: usize, counter: Counter, n: u64) {
        // Where the counter is a constant, as nearly always, the first question costs nothing.
        if counter.is_drop() && trigger::waits_for_drops() {
            trigger::dropped(counter as usize, n);
        }
        self.0.add(writer, counter as usize, n);
    }
    /// Everything that one writer has counted: it grows while that one does anything.
    pub fn of(&self, writer: usize) -> u64 {
        let slot = self.0.slot(writer);
        (0..N).fold(0, |sum, i| sum.wrapping_add(slot.read(i)))
    }
    /// The sum over all writers.
    pub fn read(&self, counter: Counter) -> u64 {
        self.0.read(counter as usize)
    }
}
