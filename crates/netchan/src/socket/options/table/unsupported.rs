//! Linux's options that netchan does not have, and why.

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, SOL_UDP, c_int};

/// Options of a level that are not there for one reason.
pub struct Unsupported {
    /// Number of the level.
    pub level: c_int,
    /// The reason.
    pub why: &'static str,
    /// What a program is told that sets or reads one.
    pub code: c_int,
    /// Numbers and names.
    pub options: &'static [(c_int, &'static str)],
}

const fn unsupported(
    level: c_int,
    why: &'static str,
    options: &'static [(c_int, &'static str)],
) -> Unsupported {
    Unsupported {
        level,
        why,
        code: libc::ENOPROTOOPT,
        options,
    }
}

/// All of them.
pub static UNSUPPORTED: &[Unsupported] = &[
    unsupported(
        SOL_SOCKET,
        "without effect in Linux since 2.2",
        &[(14, "SO_BSDCOMPAT")],
    ),
    unsupported(
        SOL_SOCKET,
        "of UNIX sockets",
        &[
            (17, "SO_PEERCRED"),
            (28, "SO_PEERNAME"),
            (31, "SO_PEERSEC"),
            (59, "SO_PEERGROUPS"),
            (76, "SO_PASSPIDFD"),
            (77, "SO_PEERPIDFD"),
            (83, "SO_PASSRIGHTS"),
            (84, "SO_INQ"),
        ],
    ),
    Unsupported {
        level: SOL_SOCKET,
        why: "of UNIX sockets: EOPNOTSUPP, as Linux since 6.16",
        code: libc::EOPNOTSUPP,
        options: &[(16, "SO_PASSCRED"), (34, "SO_PASSSEC")],
    },
    unsupported(SOL_SOCKET, "cannot be set in Linux", &[(19, "SO_SNDLOWAT")]),
    unsupported(
        SOL_SOCKET,
        "without effect in Linux",
        &[
            (22, "SO_SECURITY_AUTHENTICATION"),
            (23, "SO_SECURITY_ENCRYPTION_TRANSPORT"),
            (24, "SO_SECURITY_ENCRYPTION_NETWORK"),
            (53, "SO_CNX_ADVICE"),
        ],
    ),
    unsupported(
        SOL_SOCKET,
        "a program for the kernel's machine, which sees the kernel's packets",
        &[
            (26, "SO_ATTACH_FILTER"),
            (27, "SO_DETACH_FILTER"),
            (44, "SO_LOCK_FILTER"),
            (48, "SO_BPF_EXTENSIONS"),
            (50, "SO_ATTACH_BPF"),
            (51, "SO_ATTACH_REUSEPORT_CBPF"),
            (52, "SO_ATTACH_REUSEPORT_EBPF"),
            (68, "SO_DETACH_REUSEPORT_BPF"),
        ],
    ),
    unsupported(
        SOL_SOCKET,
        "of the kernel's devices",
        &[
            (41, "SO_WIFI_STATUS"),
            (43, "SO_NOFCS"),
            (56, "SO_INCOMING_NAPI_ID"),
            (78, "SO_DEVMEM_LINEAR"),
            (79, "SO_DEVMEM_DMABUF"),
            (80, "SO_DEVMEM_DONTNEED"),
        ],
    ),
    unsupported(
        SOL_SOCKET,
        "MSG_PEEK always begins at what is read next",
        &[(42, "SO_PEEK_OFF")],
    ),
    unsupported(
        SOL_SOCKET,
        "the error queue makes a socket POLLERR, never POLLPRI",
        &[(45, "SO_SELECT_ERR_QUEUE")],
    ),
    unsupported(
        SOL_SOCKET,
        "no queue holds packets until their time",
        &[(61, "SO_TXTIME")],
    ),
    unsupported(SOL_SOCKET, "what comes has no mark", &[(75, "SO_RCVMARK")]),
    unsupported(
        SOL_SOCKET,
        "what comes has no priority",
        &[(82, "SO_RCVPRIORITY")],
    ),
    unsupported(
        SOL_SOCKET,
        "a number of the kernel's for its sockets",
        &[(57, "SO_COOKIE"), (71, "SO_NETNS_COOKIE")],
    ),
    unsupported(
        SOL_SOCKET,
        "of C libraries whose time_t has 32 bits, with times of 64",
        &[
            (63, "SO_TIMESTAMP_NEW"),
            (64, "SO_TIMESTAMPNS_NEW"),
            (65, "SO_TIMESTAMPING_NEW"),
            (66, "SO_RCVTIMEO_NEW"),
            (67, "SO_SNDTIMEO_NEW"),
        ],
    ),
    unsupported(
        SOL_SOCKET,
        "memory is accounted otherwise: `netchan show memory`",
        &[(72, "SO_BUF_LOCK"), (73, "SO_RESERVE_MEM")],
    ),
    unsupported(
        SOL_SOCKET,
        "paths are not chosen by a hash of the sender's",
        &[(74, "SO_TXREHASH")],
    ),
    unsupported(
        IPPROTO_TCP,
        "for checkpoints of the kernel's sockets",
        &[
            (19, "TCP_REPAIR"),
            (20, "TCP_REPAIR_QUEUE"),
            (21, "TCP_QUEUE_SEQ"),
            (22, "TCP_REPAIR_OPTIONS"),
            (24, "TCP_TIMESTAMP"),
            (29, "TCP_REPAIR_WINDOW"),
            (42, "TCP_AO_REPAIR"),
        ],
    ),
    unsupported(
        IPPROTO_TCP,
        "SYNs are not kept",
        &[(27, "TCP_SAVE_SYN"), (28, "TCP_SAVED_SYN")],
    ),
    unsupported(
        IPPROTO_TCP,
        "for tests: a link of the kind `wire` has a delay",
        &[(37, "TCP_TX_DELAY")],
    ),
    unsupported(
        IPPROTO_TCP,
        "a socket has no limits of its own for timers",
        &[
            (44, "TCP_RTO_MAX_MS"),
            (45, "TCP_RTO_MIN_US"),
            (46, "TCP_DELACK_MAX_US"),
        ],
    ),
    unsupported(
        IPPROTO_TCP,
        "protocols on top (TLS) are the program's own",
        &[(31, "TCP_ULP")],
    ),
    unsupported(
        IPPROTO_TCP,
        "maps the kernel's pages",
        &[(35, "TCP_ZEROCOPY_RECEIVE")],
    ),
    unsupported(
        IPPROTO_TCP,
        "netchan has no Multipath TCP",
        &[(43, "TCP_IS_MPTCP")],
    ),
    unsupported(
        IPPROTO_IP,
        "of raw sockets, which stay with the kernel",
        &[(3, "IP_HDRINCL"), (22, "IP_NODEFRAG")],
    ),
    unsupported(
        IPPROTO_IP,
        "netchan passes IP options on and lets no program set or see them",
        &[
            (5, "IP_ROUTER_ALERT"),
            (6, "IP_RECVOPTS"),
            (7, "IP_RETOPTS"),
        ],
    ),
    unsupported(
        IPPROTO_IP,
        "recvmsg(2) tells of datagrams; of streams there is nothing to tell",
        &[(9, "IP_PKTOPTIONS")],
    ),
    unsupported(
        IPPROTO_IP,
        "sockets bind to the stack's own addresses",
        &[(15, "IP_FREEBIND"), (19, "IP_TRANSPARENT")],
    ),
    unsupported(
        IPPROTO_IP,
        "hops of what comes are not checked (RFC 5082)",
        &[(21, "IP_MINTTL")],
    ),
    unsupported(
        IPPROTO_IP,
        "checksums of datagrams are not told",
        &[(23, "IP_CHECKSUM")],
    ),
    unsupported(
        IPPROTO_IP,
        "sizes of fragments are not kept",
        &[(25, "IP_RECVFRAGSIZE")],
    ),
    unsupported(
        IPPROTO_IP,
        "extensions of ICMP errors are not told",
        &[(26, "IP_RECVERR_RFC4884")],
    ),
    unsupported(
        IPPROTO_IP,
        "SO_BINDTOIFINDEX chooses a link",
        &[(50, "IP_UNICAST_IF")],
    ),
    unsupported(
        IPPROTO_IP,
        "ports are chosen from one range (`limits.rs`)",
        &[(51, "IP_LOCAL_PORT_RANGE")],
    ),
    unsupported(
        IPPROTO_IP,
        "netchan has no IPsec",
        &[
            (16, "IP_IPSEC_POLICY"),
            (17, "IP_XFRM_POLICY"),
            (18, "IP_PASSSEC"),
        ],
    ),
    unsupported(
        IPPROTO_IP,
        "of raw sockets, which stay with the kernel",
        &[(52, "IP_PROTOCOL")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "a socket keeps its family",
        &[(1, "IPV6_ADDRFORM")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "programs choose no flow labels",
        &[(11, "IPV6_FLOWINFO")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "a stack has no anycast addresses",
        &[(27, "IPV6_JOIN_ANYCAST"), (28, "IPV6_LEAVE_ANYCAST")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "extensions of ICMP errors are not told",
        &[(31, "IPV6_RECVERR_RFC4884")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "programs choose no flow labels",
        &[(32, "IPV6_FLOWLABEL_MGR"), (33, "IPV6_FLOWINFO_SEND")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "IPV6_MTU and IPV6_RECVERR tell it",
        &[(60, "IPV6_RECVPATHMTU"), (61, "IPV6_PATHMTU")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "IPV6_MTU_DISCOVER says it",
        &[(62, "IPV6_DONTFRAG")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "Linux does not have it either",
        &[(63, "IPV6_USE_MIN_MTU")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "programs choose no flow labels",
        &[(70, "IPV6_AUTOFLOWLABEL")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "sources are chosen without a program's preferences",
        &[(72, "IPV6_ADDR_PREFERENCES")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "hops of what comes are not checked (RFC 5082)",
        &[(73, "IPV6_MINHOPCOUNT")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "sockets bind to the stack's own addresses",
        &[(75, "IPV6_TRANSPARENT")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "SO_BINDTOIFINDEX chooses a link",
        &[(76, "IPV6_UNICAST_IF")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "sizes of fragments are not kept",
        &[(77, "IPV6_RECVFRAGSIZE")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "sockets bind to the stack's own addresses",
        &[(78, "IPV6_FREEBIND")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "RFC 2292, which RFC 3542 replaced",
        &[
            (2, "IPV6_2292PKTINFO"),
            (3, "IPV6_2292HOPOPTS"),
            (4, "IPV6_2292DSTOPTS"),
            (5, "IPV6_2292RTHDR"),
            (6, "IPV6_2292PKTOPTIONS"),
            (8, "IPV6_2292HOPLIMIT"),
        ],
    ),
    unsupported(
        IPPROTO_IPV6,
        "of raw sockets, which stay with the kernel",
        &[(7, "IPV6_CHECKSUM"), (36, "IPV6_HDRINCL")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "netchan passes extension headers on and lets no program set or see them",
        &[
            (9, "IPV6_NEXTHOP"),
            (10, "IPV6_AUTHHDR"),
            (22, "IPV6_ROUTER_ALERT"),
            (30, "IPV6_ROUTER_ALERT_ISOLATE"),
            (53, "IPV6_RECVHOPOPTS"),
            (54, "IPV6_HOPOPTS"),
            (55, "IPV6_RTHDRDSTOPTS"),
            (56, "IPV6_RECVRTHDR"),
            (57, "IPV6_RTHDR"),
            (58, "IPV6_RECVDSTOPTS"),
            (59, "IPV6_DSTOPTS"),
        ],
    ),
    unsupported(
        IPPROTO_IPV6,
        "netchan has no IPsec",
        &[(34, "IPV6_IPSEC_POLICY"), (35, "IPV6_XFRM_POLICY")],
    ),
    unsupported(
        IPPROTO_IPV6,
        "as ancillary data of a send only",
        &[(50, "IPV6_PKTINFO"), (52, "IPV6_HOPLIMIT")],
    ),
    unsupported(SOL_UDP, "tunnels are the kernel's", &[(100, "UDP_ENCAP")]),
];
