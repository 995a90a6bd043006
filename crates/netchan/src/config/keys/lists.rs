//! The rows of `[[link]]`, its routes, `[[module]]`, and `[[lease]]`: of each there may be many, so they are read with their tables.

use super::{
    Changes,
    Given::{Default, Example, Instead},
    Key,
};

const OF_LINK: Key = Key {
    table: "link",
    name: "",
    value: Example(""),
    values: "",
    meaning: "",
    changes: Changes::Boot {
        shown: "",
        also: "",
    },
    read: None,
};

const OF_ROUTE: Key = Key {
    table: "link.route",
    ..OF_LINK
};

const OF_MODULE: Key = Key {
    table: "module",
    ..OF_LINK
};

const OF_LEASE: Key = Key {
    table: "lease",
    ..OF_LINK
};

pub(super) const LINK: &[Key] = &[
    Key {
        name: "kind",
        value: Example(r#""tap""#),
        values: r#"`"tap"`, `"packet"`, `"wire"`, `"pcap"`, `"loop"`, `"daemon"`"#,
        meaning: "required",
        ..OF_LINK
    },
    Key {
        name: "name",
        value: Example(r#""nc0""#),
        values: "text",
        meaning: r#"the device (`"nc0"`), the file of `pcap`, the name of a `wire`, the path of a `daemon`"#,
        ..OF_LINK
    },
    Key {
        name: "address",
        value: Example(r#"["10.77.0.2/24", "fd77::2/64"]"#),
        values: r#"list of `"ADDRESS/PREFIX"`"#,
        meaning: "this stack's addresses on the link",
        ..OF_LINK
    },
    Key {
        name: "gateway",
        value: Example(r#""10.77.0.1""#),
        values: "address, or a list of one for each family",
        meaning: "where other networks are",
        ..OF_LINK
    },
    Key {
        name: "route",
        value: Example(""),
        values: "list of tables: below",
        meaning: "routes over this link beside those that addresses and gateways make",
        ..OF_LINK
    },
    Key {
        name: "options",
        value: Example(""),
        values: "table: below",
        meaning: "what stands behind the commas of `--link`",
        ..OF_LINK
    },
];

pub(super) const ROUTE: &[Key] = &[
    Key {
        name: "to",
        value: Example(r#""192.168.0.0/16""#),
        values: r#"`"NETWORK/PREFIX"`; all of the gateway's family"#,
        meaning: "where it leads",
        ..OF_ROUTE
    },
    Key {
        name: "gateway",
        value: Example(r#""10.77.0.254""#),
        values: "address on the link; none: all of that is on the link",
        meaning: "by which router",
        ..OF_ROUTE
    },
    Key {
        name: "mark",
        value: Example("7"),
        values: "1 to 4,294,967,295; none",
        meaning: "for what is marked so (SO_MARK) only; goes before all routes without a mark",
        ..OF_ROUTE
    },
];

pub(super) const MODULE: &[Key] = &[
    Key {
        name: "name",
        value: Example(r#""firewall""#),
        values: "1 to 32 of `a-z`, `0-9`, `-`, `_`",
        meaning: "required; where there is no `kind`, it is one",
        ..OF_MODULE
    },
    Key {
        name: "kind",
        value: Example(r#""filter""#),
        values: r#"`"filter"`, `"firewall"`, `"limiter"`, `"ledger"`"#,
        meaning: "what it does; a firewall without a `file` is a filter",
        ..OF_MODULE
    },
    Key {
        name: "concurrency",
        value: Default(r#""any""#),
        values: r#", `"giant"`"#,
        meaning: r#"`"giant"`: called under Giant, as a ledger always is"#,
        ..OF_MODULE
    },
    Key {
        name: "rules",
        value: Example(r#"["pass in proto tcp to any port 80", "drop in proto tcp"]"#),
        values: "list of rules, 1,024 at most; none",
        meaning: "of a filter: tried in order",
        ..OF_MODULE
    },
    Key {
        name: "default",
        value: Default(r#""pass""#),
        values: r#", `"drop"`"#,
        meaning: "of a filter: for what no rule matches",
        ..OF_MODULE
    },
    Key {
        name: "file",
        value: Example(r#""rules.nft""#),
        values: "a file; none",
        meaning: "of a firewall: its rules, in nftables' words",
        ..OF_MODULE
    },
    Key {
        name: "ruleset",
        value: Example(
            r#""table inet t { chain c { type filter hook input priority 0; policy drop; }; }""#,
        ),
        values: "text; none",
        meaning: "of a firewall: what the file says, in its place",
        ..OF_MODULE
    },
    Key {
        name: "flows",
        value: Default("65536"),
        values: "; 1 to 16,777,216",
        meaning: "of a firewall: flows that it tracks, of some 200 bytes each",
        ..OF_MODULE
    },
    Key {
        name: "flows_each",
        value: Default("4096"),
        values: "; 1 to 16,777,216",
        meaning: "of a firewall: flows of one source, of IPv6 of its /64",
        ..OF_MODULE
    },
    Key {
        name: "point",
        value: Default(r#""in""#),
        values: r#", `"out"`, `"forward"`"#,
        meaning: "of a limiter: what it counts",
        ..OF_MODULE
    },
    Key {
        name: "packets_per_second",
        value: Example("10000"),
        values: "1 to 1,000,000,000",
        meaning: "of a limiter: this or the next is required",
        ..OF_MODULE
    },
    Key {
        name: "bytes_per_second",
        value: Instead(r#""10 MB""#),
        values: "1 to 1,000,000,000",
        meaning: "of a limiter: the same in bytes",
        ..OF_MODULE
    },
    Key {
        name: "burst",
        value: Example("20000"),
        values: "a second's worth; 1 to 1,000,000,000",
        meaning: "of a limiter: what may come at once",
        ..OF_MODULE
    },
    Key {
        name: "each",
        value: Example("[24, 64]"),
        values: "two prefix lengths; none: one bucket for all",
        meaning: "of a limiter: a bucket for each IPv4 /24 and IPv6 /64",
        ..OF_MODULE
    },
    Key {
        name: "table",
        value: Default("65536"),
        values: "; 1 to 16,777,216",
        meaning: "of a limiter: buckets",
        ..OF_MODULE
    },
    Key {
        name: "peers",
        value: Default("1024"),
        values: "; 1 to 1,048,576",
        meaning: "of a ledger: accounts",
        ..OF_MODULE
    },
];

pub(super) const LEASE: &[Key] = &[
    Key {
        name: "user",
        value: Example(r#""www-data""#),
        values: "name or number; anyone",
        meaning: "the process is this user's",
        ..OF_LEASE
    },
    Key {
        name: "group",
        value: Example(r#""www-data""#),
        values: "name or number; any",
        meaning: "the process is of this group, or its user is a member",
        ..OF_LEASE
    },
    Key {
        name: "program",
        value: Example(r#""/usr/sbin/nginx""#),
        values: "absolute path; any",
        meaning: "the process runs this file (docs/daemon.md says what that is worth)",
        ..OF_LEASE
    },
    Key {
        name: "ports",
        value: Example(r#"["80", "443", "8000-8999"]"#),
        values: "list of ports and ranges, 64 at most",
        meaning: "it may have these; this, `packets` or `frames` is required",
        ..OF_LEASE
    },
    Key {
        name: "protocol",
        value: Example(r#""tcp""#),
        values: r#"`"tcp"`, `"udp"`; both"#,
        meaning: "of which protocol",
        ..OF_LEASE
    },
    Key {
        name: "packets",
        value: Example("[89]"),
        values: "list of IP protocol numbers that the stack does not speak, 64 at most",
        meaning: "it may have a packet channel for these",
        ..OF_LEASE
    },
    Key {
        name: "frames",
        value: Example("[0x88b5]"),
        values: "list of EtherTypes from 0x0600 on that the stack does not speak, 64 at most",
        meaning: "it may have a packet channel for the frames of these",
        ..OF_LEASE
    },
];
