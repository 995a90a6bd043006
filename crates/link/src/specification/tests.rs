//! Specifications: what people write, and what they get told.

use super::*;

fn wrong(text: &str, says: &[&str]) {
    let error = parse(text).expect_err(text).to_string();
    assert!(error.starts_with(&format!("link `{text}`: ")), "{error}");
    for word in says {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn written_as_parsed() {
    for text in [
        "wire",
        "wire:a",
        "wire:a,delay=10ms,jitter=1ms,reorder=5%,extent=2ms,loss=1%,dup=0.5%,corrupt=0.1%,rate=100mbit,queue=100,seed=7",
        "wire,queue=64 KiB,ring=1024,checksum=trusted,mtu=65535,mac=02:00:00:00:00:01",
        "tap",
        "tap:nc0",
        "tap:nc0,mtu=1500,mac=02:00:00:00:00:01,offload=off,peer=10.77.0.1/24;fd77::1/64,peer=10.78.0.1/24",
        "packet:eth0,mac=own",
        "loop",
        "loop,mtu=1500",
        "daemon",
        "daemon:/run/user/7/netchan/daemon.sock,link=nc0,mtu=1400,capture=x.pcapng",
        "tap:nc0,capture=/tmp/x.pcapng",
    ] {
        let specification = parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(specification.to_string(), text);
        assert_eq!(text.parse(), Ok(specification));
    }
}

#[test]
fn wire_options_are_read() {
    let text = "wire,delay=10ms,loss=1%,rate=100mbit,queue=100,queue=64KiB,seed=7,dup=50%";
    let options = parse(text).unwrap().wire_options().unwrap().unwrap();
    assert_eq!(options.delay, std::time::Duration::from_millis(10));
    assert_eq!(options.rate, NonZeroU64::new(100_000_000));
    assert_eq!(
        (options.queue_frames, options.queue_bytes),
        (Some(100), Some(65_536))
    );
    assert_eq!((options.seed, options.trusted), (7, false));
    assert_eq!(options.duplicate, wire::Probability::new(0.5));
    assert_eq!(parse("wire:a").unwrap().wire_options(), Ok(None));
    assert_eq!(parse("wire:a,capture=f").unwrap().wire_options(), Ok(None));
}

#[test]
fn daemon_options_are_read() {
    let options = |text| parse(text).unwrap().daemon_options().unwrap();
    assert_eq!(options("daemon"), lease::Options::default());
    let all = options("daemon:/tmp/d.sock,link=nc0,mtu=1400,memory=16 MiB");
    assert_eq!(all.path.as_deref(), Some(Path::new("/tmp/d.sock")));
    assert_eq!((&*all.link, all.mtu), ("nc0", Some(1400)));
    assert_eq!(all.memory, Some(16 << 20));
}

#[test]
fn mistakes_are_named() {
    wrong(
        "",
        &["unknown kind", "wire, tap, packet, pcap, loop, daemon"],
    );
    wrong("tun:nc0", &["unknown kind `tun`"]);
    for kind in ["xdp:eth0,queues=2", "shm:/path"] {
        wrong(kind, &["not supported yet", "tap"]);
    }
    wrong(
        "tap:nc0,colour=red",
        &["unknown option `colour`", "mtu", "offload"],
    );
    wrong(
        "tap:nc0,delay=1ms",
        &["unknown option `delay`", "`tap` takes"],
    );
    wrong("tap:nc0,mtu", &["`mtu`", "key=value"]);
    wrong("tap:nc0,", &["key=value"]);
    wrong("tap:nc0,mtu=12", &["`mtu`", "`12`", "68 to 65521"]);
    wrong("tap:nc0,mtu=99999999999999999999", &["`mtu`"]);
    wrong(
        "tap:nc0,mac=02:00:00:00:00",
        &["`mac`", "02:00:00:00:00:01"],
    );
    wrong("tap:nc0,mac=ff:ff:ff:ff:ff:ff", &["`mac`", "one station"]);
    wrong("tap:nc0,offload=perhaps", &["`offload`", "perhaps"]);
    wrong("tap:nc0,peer=10.77.0.1", &["`peer`", "prefix"]);
    wrong("tap:nc0,peer=10.77.0.1/24;", &["`peer`"]);
    wrong("tap:nc0,peer=224.0.0.1/24", &["`peer`", "one host"]);
    wrong("tap:nc0,capture=", &["`capture`", "which file"]);
    wrong("packet", &["which interface"]);
    wrong("pcap", &["which file"]);
    wrong("loop:x", &["no name"]);
    wrong("daemon,mac=02:00:00:00:00:01", &["`mac`", "the daemon's"]);
    wrong("daemon,link=", &["`link`", "which of the daemon's links"]);
    wrong("daemon,memory=much", &["`memory`", "`much`", "16 MiB"]);
    wrong("daemon,mtu=12", &["`mtu`", "68 to 65535"]);
    wrong("daemon,offload=off", &["`daemon` takes", "link"]);
    wrong("deamon", &["did you mean `daemon`?"]);
    let path = "x".repeat(108);
    wrong(&format!("daemon:{path}"), &["at most 107 bytes"]);
    wrong("daemon:a\0b", &["no zero"]);
    let link = "x".repeat(256);
    wrong(&format!("daemon,link={link}"), &["`link`", "255"]);
    wrong("wire,delay=10", &["`delay`", "10ms"]);
    wrong("wire,loss=2", &["`loss`"]);
    wrong("wire,rate=fast", &["`rate`", "100mbit"]);
    wrong("wire,queue=0", &["`queue`"]);
    wrong("wire,queue=10B", &["`queue`", "1500 B"]);
    wrong("wire,seed=-1", &["`seed`"]);
    wrong("wire,ring=0", &["`ring`"]);
    wrong("wire,checksum=maybe", &["`checksum`", "trusted"]);
}

/// A comma that is missing or another sign is named, and what was meant; it does not become a part of a name.
#[test]
fn a_wrong_separator_is_named() {
    for (text, meant) in [
        ("tap:nc0;mtu=9000", "`tap:nc0,mtu=9000`"),
        ("tap:nc0 mtu=9000", "`tap:nc0,mtu=9000`"),
        ("tap:nc0:mtu=9000", "`tap:nc0,mtu=9000`"),
        (
            "tap:nc0&offload=off,mtu=9000",
            "`tap:nc0,offload=off,mtu=9000`",
        ),
        ("tap;mtu=9000", "`tap,mtu=9000`"),
        ("tap:mtu=9000", "`tap,mtu=9000`"),
        ("packet:eth0; mac = own", "`packet:eth0,mac= own`"),
        ("wire:a;loss=1%", "`wire:a,loss=1%`"),
        ("loop;mtu=100", "`loop,mtu=100`"),
        ("pcap:a b.pcap;pace=fast", "`pcap:a b.pcap,pace=fast`"),
    ] {
        wrong(text, &["behind commas", meant]);
    }
    // A file's name may have nearly everything in it.
    let file = parse("pcap:/tmp/a:b mtu=9.pcap").unwrap();
    assert_eq!(file.name, "/tmp/a:b mtu=9.pcap");
}

#[test]
fn nothing_behind_a_colon_is_no_name() {
    wrong("tap:", &["no name behind the `:`", "`tap:nc0`", "`tap`"]);
    wrong("tap: ,mtu=9000", &["no name behind the `:`"]);
    wrong("packet:", &["which interface?"]);
    wrong("wire:,loss=1%", &["no name behind the `:`", "`wire:NAME`"]);
    wrong("pcap:", &["which file?"]);
    wrong("loop:", &["nothing behind the `:`"]);
    wrong("daemon:", &["no path behind the `:`", "`daemon`"]);
    assert!(parse("tap").is_ok() && parse("tap,mtu=9000").is_ok());
}

/// What cannot be in the name of an interface: `/`, `:`, white space (dev_valid_name), more than 15 bytes; and what is a slip of the hand.
#[test]
fn an_interface_has_a_name_that_it_can_have() {
    for kind in ["tap", "packet"] {
        let signs = "/:;%=\"'\u{a0}\u{7f}\u{2003}";
        for sign in signs.chars().chain([' ', '\t', '\n', '\u{b}', '\r']) {
            wrong(
                &format!("{kind}:nc{sign}0"),
                &[&format!(
                    "no interface can have the name `nc{sign}0`, because of its {sign:?}"
                )],
            );
        }
        wrong(
            &format!("{kind}:."),
            &["no interface can have the name `.`"],
        );
        wrong(
            &format!("{kind}:.."),
            &["no interface can have the name `..`"],
        );
        wrong(
            &format!("{kind}:abcdefghijklmnop"),
            &["too long", "at most 15 bytes, this has 16"],
        );
        wrong(
            &format!("{kind}:ääääääää"),
            &["too long", "at most 15 bytes, this has 16"],
        );
        for name in [
            "abcdefghijklmno",
            "eth0.100",
            "br-lan",
            "veth@x",
            "äääääää",
            "a!#~",
        ] {
            assert!(parse(&format!("{kind}:{name}")).is_ok(), "{kind}:{name}");
        }
    }
}

#[test]
fn error_is_one_of_input() {
    let error = io::Error::from(parse("nothing").unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn loop_returns_what_it_was_given() {
    use std::collections::VecDeque;
    let link = open(&parse("loop,mtu=100").unwrap(), &Clock::Real).unwrap();
    let mut link = crate::Queue::of(link).unwrap();
    let mut slab = percore::slab::Slab::new(4, 256).unwrap();
    let mut packet = |len| {
        let mut packet = netchan_base::packet::Packet::new(slab.alloc().unwrap(), 0);
        packet.set_len(len);
        packet
    };
    let mut frames = VecDeque::from([packet(60), packet(200), packet(122)]);
    let now = proto::time::Instant::ZERO;
    assert_eq!(link.rx.next_event(), proto::time::Instant::FAR);
    assert_eq!(link.tx.transmit(now, &mut frames).unwrap(), 3);
    assert_eq!(link.rx.next_event(), proto::time::Instant::ZERO);
    assert_eq!(link.rx.receive(now, &mut slab, &mut frames, 32).unwrap(), 2);
    assert_eq!(
        frames
            .iter()
            .map(netchan_base::packet::Packet::len)
            .collect::<Vec<_>>(),
        [60, 122]
    );
    let (rx, tx) = (link.rx.statistics(), link.tx.statistics());
    assert_eq!(
        (tx.packets, rx.packets, tx.errors, rx.bytes),
        (2, 2, 1, 182)
    );
}
