//! The rules of IGMPv3 and MLDv2 one by one, each with its citation, in virtual time.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod many;

use super::*;
use crate::wire::igmp::{self, emit_leave, emit_old_report, emit_report};
use crate::wire::membership::{Message, Sources};
use crate::wire::{Error, Protocol, checksum, ipv4, ipv6, mld};

const START: Instant = Instant(5_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn group() -> IpAddr {
    "239.1.2.3".parse().unwrap()
}

fn host(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn only(hosts: &[u8]) -> Filter {
    let mut filter = Filter::of(Mode::Include);
    for &n in hosts {
        assert!(filter.add(host(n)));
    }
    filter
}

fn all_but(hosts: &[u8]) -> Filter {
    let mut filter = Filter::of(Mode::Exclude);
    for &n in hosts {
        assert!(filter.add(host(n)));
    }
    filter
}

fn record(kind: Kind, hosts: &[u8]) -> Record {
    let sources = hosts.iter().map(|&n| host(n)).collect();
    Record {
        kind,
        group: group(),
        sources,
    }
}

struct World {
    membership: Membership,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            membership: Membership::new(Seed([1, 2])),
            now: START,
        }
    }

    fn set(&mut self, filter: Filter) -> Vec<Say> {
        let mut said = Vec::new();
        let fits = (self.membership).set(group(), filter, self.now, &mut |say| said.push(say));
        assert!(fits);
        said
    }

    /// Lets time go by, from one deadline to the next; what is said, and when.
    fn wait(&mut self, time: Duration) -> Vec<(Duration, Say)> {
        let (begin, end) = (self.now, self.now + time);
        let mut said = Vec::new();
        while self.membership.deadline() <= end {
            self.now = self.membership.deadline().max(self.now);
            let at = self.now.since(begin);
            let before = self.membership.deadline();
            (self.membership).on_timer(self.now, &mut |say| said.push((at, say)));
            assert!(self.membership.deadline() > before, "time must go on");
        }
        self.now = end;
        said
    }

    fn ask(&mut self, version: Version, group: Option<IpAddr>, sources: &[u8], within: Duration) {
        let octets: Vec<u8> = sources.iter().flat_map(|&n| [10, 0, 0, n]).collect();
        let query = Query {
            version,
            group,
            max_response: within,
            robustness: 0,
            interval: Duration::ZERO,
            sources: Sources::v4(&octets),
        };
        self.membership.on_query(&query, self.now);
    }
}

fn reports(said: Vec<(Duration, Say)>) -> Vec<Vec<Record>> {
    let records = |say| match say {
        Say::Report(records) => records,
        other => panic!("{other:?}"),
    };
    said.into_iter().map(|(_, say)| records(say)).collect()
}

#[test]
fn the_interfaces_state_is_made_of_all_sockets_by_rfc_9776_section_3_2() {
    let merged = |filters: &[Filter]| Filter::merge(filters.iter());
    assert_eq!(merged(&[]), Filter::NO_SOURCE);
    // The RFC's own examples.
    assert_eq!(
        merged(&[
            all_but(&[1, 2, 3, 4]),
            all_but(&[2, 3, 4, 5]),
            only(&[4, 5, 6])
        ]),
        all_but(&[2, 3])
    );
    assert_eq!(
        merged(&[only(&[1, 2, 3]), only(&[2, 3, 4]), only(&[5, 6])]),
        only(&[1, 2, 3, 4, 5, 6])
    );
    assert_eq!(
        merged(&[Filter::ANY_SOURCE, all_but(&[1])]),
        Filter::ANY_SOURCE
    );
    for (filter, hears) in [(only(&[1]), [true, false]), (all_but(&[1]), [false, true])] {
        assert_eq!([filter.hears(host(1)), filter.hears(host(2))], hears);
    }
    // Bounded: what no list can say is let in.
    let many = |from: u32| {
        let mut filter = Filter::of(Mode::Include);
        for n in 0..700 {
            filter.add(IpAddr::V4(Ipv4Addr::from_bits(from + n)));
        }
        filter
    };
    assert_eq!(merged(&[many(1 << 24), many(1 << 25)]), Filter::ANY_SOURCE);
}

#[test]
fn a_join_and_a_leave_are_reported_robustness_times_within_a_second_rfc_9776_section_5_1() {
    let mut world = World::new();
    let join = record(Kind::ChangeToExclude, &[]);
    assert_eq!(
        world.set(Filter::ANY_SOURCE),
        [Say::Report([join.clone()].into())]
    );
    assert!(
        world.set(Filter::ANY_SOURCE).is_empty(),
        "no change, no report"
    );
    let again = world.wait(SECOND);
    assert_eq!(again.len(), 1, "the Robustness Variable is 2 (§8.1)");
    assert!(again[0].0 <= UNSOLICITED_INTERVAL);
    assert_eq!(reports(again), [[join]]);
    assert_eq!(world.membership.deadline(), Instant::FAR);

    let leave = record(Kind::ChangeToInclude, &[]);
    assert_eq!(
        world.set(Filter::NO_SOURCE),
        [Say::Report([leave.clone()].into())]
    );
    assert_eq!(world.membership.groups().count(), 0, "it is left at once");
    assert_eq!(reports(world.wait(SECOND)), [[leave]]);
    assert!(
        world.membership.groups.is_empty(),
        "and forgotten once that is said"
    );
}

#[test]
fn sources_that_come_and_go_are_allowed_and_blocked_rfc_9776_section_5_1() {
    let mut world = World::new();
    // From no state (INCLUDE {}) to INCLUDE {1, 2}: only sources change.
    assert_eq!(
        world.set(only(&[1, 2])),
        [Say::Report([record(Kind::AllowNewSources, &[1, 2])].into())]
    );
    // Before its repetition another change: each source counts for itself.
    let said = world.set(only(&[2, 3]));
    let [Say::Report(records)] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(
        records[..],
        [
            record(Kind::AllowNewSources, &[2, 3]),
            record(Kind::BlockOldSources, &[1])
        ]
    );
    assert_eq!(
        reports(world.wait(SECOND)),
        [[
            record(Kind::AllowNewSources, &[3]),
            record(Kind::BlockOldSources, &[1])
        ]],
        "2 has been said twice"
    );
    // A change of mode says the whole list, and takes precedence.
    assert_eq!(
        world.set(all_but(&[7])),
        [Say::Report([record(Kind::ChangeToExclude, &[7])].into())]
    );
    assert_eq!(
        world.set(all_but(&[7, 8])),
        [Say::Report([record(Kind::ChangeToExclude, &[7, 8])].into())]
    );
    let rest = reports(world.wait(SECOND * 3));
    assert_eq!(
        rest,
        [
            [record(Kind::BlockOldSources, &[8])],
            [record(Kind::BlockOldSources, &[8])]
        ]
    );
}

#[test]
fn queries_are_answered_within_their_time_by_the_five_rules_of_rfc_9776_section_5_2() {
    let mut world = World::new();
    let _ = world.set(only(&[1, 2]));
    world.wait(SECOND * 2);
    let three = Version::Third;

    // 2: a general query, answered with the current state of all groups.
    world.ask(three, None, &[], SECOND * 10);
    // 1: what comes now is answered by that, if that is earlier.
    world.ask(three, Some(group()), &[], SECOND * 100_000);
    let answers = world.wait(SECOND * 10);
    assert!(answers[0].0 <= SECOND * 10);
    assert_eq!(reports(answers), [[record(Kind::ModeIsInclude, &[1, 2])]]);

    // 3: for certain sources: those of them that are heard.
    world.ask(three, Some(group()), &[2, 9], SECOND);
    assert_eq!(
        reports(world.wait(SECOND)),
        [[record(Kind::ModeIsInclude, &[2])]]
    );
    // Nothing to say of those that are not.
    world.ask(three, Some(group()), &[9], SECOND);
    assert!(world.wait(SECOND).is_empty());
    // 5: two such add up, at the earlier time.
    world.ask(three, Some(group()), &[1], SECOND * 1000);
    world.ask(three, Some(group()), &[2], SECOND);
    assert_eq!(
        reports(world.wait(SECOND)),
        [[record(Kind::ModeIsInclude, &[1, 2])]]
    );
    // 4: with one for the group as a whole it is about the group.
    world.ask(three, Some(group()), &[1], SECOND);
    world.ask(three, Some(group()), &[], SECOND);
    assert_eq!(
        reports(world.wait(SECOND)),
        [[record(Kind::ModeIsInclude, &[1, 2])]]
    );

    // EXCLUDE: of those asked for, the ones that are not excluded.
    let _ = world.set(all_but(&[1]));
    world.wait(SECOND * 2);
    world.ask(three, Some(group()), &[1, 2, 3], SECOND);
    assert_eq!(
        reports(world.wait(SECOND)),
        [[record(Kind::ModeIsInclude, &[2, 3])]]
    );
    world.ask(three, Some(group()), &[], SECOND);
    assert_eq!(
        reports(world.wait(SECOND)),
        [[record(Kind::ModeIsExclude, &[1])]]
    );
    // Of a group without a member nothing is said.
    world.ask(three, Some("239.9.9.9".parse().unwrap()), &[], SECOND);
    assert!(world.wait(SECOND).is_empty());
}

#[test]
fn response_times_are_spread_over_the_whole_interval() {
    let mut world = World::new();
    let _ = world.set(Filter::ANY_SOURCE);
    world.wait(SECOND * 2);
    let mut times = Vec::new();
    for _ in 0..64 {
        world.ask(Version::Third, None, &[], SECOND * 10);
        times.push(world.wait(SECOND * 10)[0].0);
    }
    assert!(times.iter().any(|t| *t < SECOND * 2) && times.iter().any(|t| *t > SECOND * 8));
    // A flood of queries that want an answer at once shares its answers.
    for _ in 0..1000 {
        world.ask(Version::Third, None, &[], Duration::ZERO);
    }
    assert_eq!(world.wait(SECOND).len(), 1);
}

#[test]
fn the_queriers_robustness_is_taken_over_rfc_9776_section_4_1_6() {
    let mut world = World::new();
    let query = Query {
        version: Version::Third,
        group: None,
        max_response: SECOND,
        robustness: 4,
        interval: SECOND * 20,
        sources: Sources::v4(&[]),
    };
    world.membership.on_query(&query, world.now);
    world.wait(SECOND);
    assert_eq!(world.set(Filter::ANY_SOURCE).len(), 1);
    assert_eq!(world.wait(SECOND * 4).len(), 3);
    // And counts for how long an older querier is believed to be there (§8.12): 4 × 20 s + 1 s.
    world.ask(Version::Second, None, &[], SECOND);
    world.wait(SECOND * 80);
    let _ = world.set(Filter::NO_SOURCE);
    assert_eq!(world.membership.version(), Version::Second);
    world.wait(SECOND);
    let _ = world.set(Filter::ANY_SOURCE);
    assert_eq!(world.membership.version(), Version::Third);
}

#[test]
fn with_a_version_2_querier_version_2_is_spoken_rfc_9776_section_7_2_1() {
    let mut world = World::new();
    let _ = world.set(Filter::ANY_SOURCE);
    // The change of version cancels what was to be sent.
    world.ask(
        Version::Second,
        Some("239.9.9.9".parse().unwrap()),
        &[],
        SECOND * 10,
    );
    assert_eq!(world.membership.version(), Version::Second);
    assert!(world.wait(SECOND * 20).is_empty());

    world.ask(Version::Second, None, &[], SECOND * 10);
    let answers = world.wait(SECOND * 10);
    assert!(matches!(answers[..], [(_, Say::Join(Version::Second, g))] if g == group()));
    // RFC 2236 §3: another host's report stops ours; then we are not the last to report, and leave in silence.
    world.ask(Version::Second, None, &[], SECOND * 10);
    world.membership.on_report(group(), world.now);
    assert!(world.wait(SECOND * 10).is_empty());
    assert!(world.set(Filter::NO_SOURCE).is_empty());
    // A join is said at once and again within ten seconds (§3, §8.10), whatever its sources; the last reporter says that it leaves.
    assert_eq!(world.set(only(&[1])), [Say::Join(Version::Second, group())]);
    assert!(world.set(only(&[1, 2])).is_empty(), "it knows no sources");
    assert_eq!(world.wait(SECOND * 10).len(), 1);
    assert_eq!(world.set(Filter::NO_SOURCE), [Say::Leave(group())]);
    // A query of version 3 changes nothing while the old querier is there; 2 × 125 s + 10 s later it is gone.
    world.ask(Version::Third, None, &[], SECOND);
    assert_eq!(world.membership.version(), Version::Second);
    world.wait(SECOND * 270);
    assert_eq!(
        world.set(Filter::ANY_SOURCE),
        [Say::Report([record(Kind::ChangeToExclude, &[])].into())]
    );
}

#[test]
fn a_version_1_querier_hears_no_leaves_rfc_2236_section_4() {
    let mut world = World::new();
    world.ask(Version::First, None, &[], SECOND * 10);
    assert_eq!(
        world.set(Filter::ANY_SOURCE),
        [Say::Join(Version::First, group())]
    );
    world.wait(SECOND * 10);
    assert!(world.set(Filter::NO_SOURCE).is_empty());
}

#[test]
fn all_systems_and_all_nodes_are_never_reported() {
    // RFC 9776 §5 (224.0.0.1), RFC 9777 §6 (ff02::1, scopes 0 and 1).
    let mut membership = Membership::new(Seed([1, 2]));
    let mut said = 0;
    for silent in ["224.0.0.1", "ff02::1", "ff01::99", "ff00::1"] {
        let group = silent.parse().unwrap();
        assert!(membership.set(group, Filter::ANY_SOURCE, START, &mut |_| said += 1));
    }
    let query = Query {
        version: Version::Third,
        group: None,
        max_response: SECOND,
        robustness: 0,
        interval: Duration::ZERO,
        sources: Sources::v6(&[]),
    };
    membership.on_query(&query, START);
    membership.on_timer(START + SECOND, &mut |say| {
        assert_eq!(say, Say::Report(Vec::new()));
    });
    assert_eq!((said, membership.groups().count()), (0, 4));
}

#[test]
fn memory_is_bounded() {
    let mut membership = Membership::new(Seed([1, 2]));
    let nth = |n: usize| IpAddr::V4(Ipv4Addr::from_bits(0xef00_0000 + u32::try_from(n).unwrap()));
    for n in 0..GROUPS_MAX {
        assert!(membership.set(nth(n), Filter::ANY_SOURCE, START, &mut |_| {}));
    }
    assert!(!membership.set(nth(GROUPS_MAX), Filter::ANY_SOURCE, START, &mut |_| {}));
    // Queries for ever more sources end as one for the group.
    let mut world = World::new();
    let _ = world.set(Filter::ANY_SOURCE);
    world.wait(SECOND * 2);
    for first in 0..60_u8 {
        let asked: Vec<u8> = (0..4).map(|n| first * 4 + n).collect();
        world.ask(Version::Third, Some(group()), &asked, SECOND * 10);
        let answer = world.membership.groups[&group()].answer.as_ref().unwrap();
        assert!(answer.sources.len() <= ASKED_MAX);
    }
    assert_eq!(
        reports(world.wait(SECOND * 10)),
        [[record(Kind::ModeIsExclude, &[])]]
    );
}

// ---------------------------------------------------------------- on the wire

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn parsed(packet: &[u8]) -> Result<Message<'_>, Error> {
    igmp::parse(&ipv4::Header::parse(packet).unwrap(), packet)
}

#[test]
fn a_version_3_report_is_as_rfc_9776_section_4_2_has_it() {
    let records = [
        record(Kind::ChangeToExclude, &[7]),
        record(Kind::AllowNewSources, &[1, 2]),
    ];
    let mut pending = Pending::new(records.into());
    let mut room = [0; 100];
    let len = emit_report(US, &mut pending, &mut room);
    assert!(pending.is_done());
    let header = ipv4::Header::parse(&room[..len]).unwrap();
    // TTL 1, router alert, internetwork control (§4), to 224.0.0.22 (§4.2.14).
    assert_eq!((header.ttl, header.tos, header.header_len), (1, 0xc0, 24));
    assert_eq!(
        (header.destination, header.protocol),
        (igmp::ROUTERS_V3, Protocol::IGMP)
    );
    assert_eq!(header.options(&room), [148, 4, 0, 0]);
    let message = header.payload(&room[..len]);
    assert!(checksum::is_valid(checksum::sum(message)));
    assert_eq!(message[..2], [0x22, 0]);
    assert_eq!(message[4..8], [0, 0, 0, 2]);
    assert_eq!(message[8..20], [4, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 7]);
    assert_eq!(
        message[20..],
        [5, 0, 0, 2, 239, 1, 2, 3, 10, 0, 0, 1, 10, 0, 0, 2]
    );
    assert_eq!(parsed(&room[..len]), Ok(Message::ForRouters));
}

#[test]
fn lists_that_do_not_fit_are_split_or_cut_rfc_9776_section_4_2_16() {
    let hosts: Vec<u8> = (1..=20).collect();
    // Room for the headers, one record and five sources.
    let room = igmp::IP_HEADER + 8 + 8 + 5 * 4;
    let packets = |kind| {
        let mut pending = Pending::new([record(kind, &hosts), record(kind, &[99])].into());
        let mut all: Vec<Vec<u8>> = Vec::new();
        while !pending.is_done() {
            let mut packet = alloc::vec![0; room];
            let len = emit_report(US, &mut pending, &mut packet);
            assert!(len > 0 && len <= room);
            all.push(packet[igmp::IP_HEADER + 16..len].to_vec());
        }
        all
    };
    let split = packets(Kind::AllowNewSources);
    let said: Vec<u8> = split.iter().flatten().copied().skip(3).step_by(4).collect();
    assert_eq!(split.len(), 5);
    assert_eq!(said[..20], hosts[..]);
    assert_eq!(packets(Kind::ModeIsExclude).len(), 2, "cut after five");
    // Where not even one record fits, it ends all the same.
    let mut pending = Pending::new([record(Kind::ModeIsExclude, &[])].into());
    assert_eq!(emit_report(US, &mut pending, &mut [0; 30]), 0);
    let mut small = [0; igmp::IP_HEADER + 12];
    assert_eq!(emit_report(US, &mut pending, &mut small), 0);
    assert!(pending.is_done());
}

/// An IGMP query with its IPv4 header; `alert`: with router alert.
fn query_packet(to: Ipv4Addr, body: &[u8], alert: bool) -> Vec<u8> {
    let mut room = [0; 200];
    let len = emit_old_report(Version::Second, US, to, &mut room);
    assert_eq!(len, 32);
    let mut packet = room[..igmp::IP_HEADER].to_vec();
    if !alert {
        packet[20..24].fill(1); // no operation
    }
    packet.extend_from_slice(body);
    let total = u16::try_from(packet.len()).unwrap().to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[16..20].copy_from_slice(&to.octets());
    for (from, to, field) in [(0, 24, 10), (24, packet.len(), 26)] {
        packet[field..field + 2].fill(0);
        let sum = checksum::finish(checksum::sum(&packet[from..to])).to_be_bytes();
        packet[field..field + 2].copy_from_slice(&sum);
    }
    packet
}

/// A message of eight bytes, its checksum still to be made.
fn short(code: u8, group: [u8; 4]) -> Vec<u8> {
    let mut body = alloc::vec![0x11, code, 0, 0];
    body.extend_from_slice(&group);
    body
}

#[test]
fn queries_are_told_apart_by_rfc_9776_section_7_1() {
    let all = igmp::ALL_SYSTEMS;
    let asked = Ipv4Addr::new(239, 1, 2, 3);
    let query = |packet: &[u8]| match parsed(packet) {
        Ok(Message::Query(q)) => (q.version, q.group, q.max_response.as_millis()),
        other => panic!("{other:?}"),
    };
    let (none, some) = ([0; 4], asked.octets());
    // Version 1 is told by its code, needs no alert, and asks for all groups within ten seconds.
    let first = query_packet(all, &short(0, none), false);
    assert_eq!(query(&first), (Version::First, None, 10_000));
    let second = query_packet(all, &short(100, none), true);
    assert_eq!(query(&second), (Version::Second, None, 10_000));
    let of_group = query_packet(asked, &short(10, some), true);
    assert_eq!(
        query(&of_group),
        (Version::Second, Some(asked.into()), 1000)
    );
    let mut third = short(0x8f, some);
    third.extend_from_slice(&[0x0a, 125, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2]);
    let packet = query_packet(asked, &third, true);
    // §4.1.1: 0x8f is (0xf | 0x10) << 3 = 248 tenths.
    assert_eq!(query(&packet), (Version::Third, Some(asked.into()), 24_800));
    let Ok(Message::Query(q)) = parsed(&packet) else {
        panic!();
    };
    assert_eq!((q.robustness, q.interval), (2, SECOND * 125));
    assert!(q.sources.iter().eq([host(1), host(2)]));
}

#[test]
fn queries_against_the_rules_are_refused_rfc_9776_sections_7_1_and_9_1() {
    let (all, asked) = (igmp::ALL_SYSTEMS, Ipv4Addr::new(239, 1, 2, 3));
    let first = query_packet(all, &short(0, [0; 4]), false);
    let none = [0; 4];
    let mut third = short(0x8f, asked.octets());
    third.extend_from_slice(&[0x0a, 125, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2]);
    // SHOULD be ignored: versions 2 and 3 without router alert; a general query that is not for all systems.
    assert_eq!(
        parsed(&query_packet(all, &short(100, none), false)),
        Err(Error::Value)
    );
    assert_eq!(
        parsed(&query_packet(asked, &third, false)),
        Err(Error::Value)
    );
    assert_eq!(
        parsed(&query_packet(asked, &short(100, none), true)),
        Err(Error::Value)
    );
    assert_eq!(
        parsed(&query_packet(all, &short(100, [10, 0, 0, 1]), true)),
        Err(Error::Value)
    );
    // §7.1: lengths that are no version's; sources that are not there; a general query with sources.
    for (body, error) in [
        (third[..9].to_vec(), Error::Length),
        (third[..11].to_vec(), Error::Length),
        (third[..16].to_vec(), Error::Length),
        (third[..7].to_vec(), Error::Truncated),
    ] {
        assert_eq!(
            parsed(&query_packet(asked, &body, true)),
            Err(error),
            "{}",
            body.len()
        );
    }
    let mut general = third;
    general[4..8].fill(0);
    assert_eq!(
        parsed(&query_packet(all, &general, true)),
        Err(Error::Value)
    );
    let mut wrong = first;
    wrong[26] ^= 1;
    assert_eq!(parsed(&wrong), Err(Error::Checksum));
    assert_eq!(
        parsed(&query_packet(all, &[0x13, 0, 0, 0, 0, 0, 0, 0], true)),
        Err(Error::Version)
    );
}

#[test]
fn messages_of_version_2_are_as_rfc_2236_has_them() {
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let mut room = [0; 64];
    let len = emit_old_report(Version::Second, US, group, &mut room);
    assert_eq!(parsed(&room[..len]), Ok(Message::Report(group.into())));
    assert_eq!((room[24], &room[16..20]), (0x16, &group.octets()[..]));
    emit_old_report(Version::First, US, group, &mut room);
    assert_eq!(room[24], 0x12);
    let len = emit_leave(US, group, &mut room);
    assert_eq!((room[24], &room[16..20]), (0x17, &[224, 0, 0, 2][..]));
    assert_eq!(parsed(&room[..len]), Ok(Message::ForRouters));
    assert_eq!(emit_leave(US, group, &mut [0; 31]), 0);
}

/// An MLD query from a router, with what `change` makes of the whole packet before it is parsed.
fn mld_parsed(
    body: &[u8],
    change: impl FnOnce(&mut ipv6::Header, &mut bool),
) -> Result<Version, Error> {
    let mut header =
        ipv6::Header::new(Protocol::ICMPV6, "fe80::1".parse().unwrap(), mld::ALL_NODES);
    header.hop_limit = 1;
    let mut alert = true;
    change(&mut header, &mut alert);
    let mut body = body.to_vec();
    let len = u32::try_from(body.len()).unwrap();
    let pseudo =
        checksum::pseudo_header_v6(header.source, header.destination, Protocol::ICMPV6, len);
    let sum = checksum::finish(pseudo + checksum::sum(&body)).to_be_bytes();
    body[2..4].copy_from_slice(&sum);
    mld::parse(&header, &body, alert).map(|message| match message {
        Message::Query(query) => query.version,
        other => panic!("{other:?}"),
    })
}

#[test]
fn mld_queries_are_checked_by_rfc_9777_section_6_2() {
    let mut body = [0; 28 + 16];
    body[0] = 130;
    assert_eq!(mld_parsed(&body[..24], |_, _| {}), Ok(Version::Second));
    assert_eq!(mld_parsed(&body[..28], |_, _| {}), Ok(Version::Third));
    // MUST be dropped: another hop limit, a source that is not link-local, no router alert.
    assert_eq!(
        mld_parsed(&body[..28], |h, _| h.hop_limit = 2),
        Err(Error::Value)
    );
    assert_eq!(
        mld_parsed(&body[..28], |_, alert| *alert = false),
        Err(Error::Value)
    );
    for source in ["fd77::1", "::"] {
        let set = |h: &mut ipv6::Header, _: &mut bool| h.source = source.parse().unwrap();
        assert_eq!(mld_parsed(&body[..28], set), Err(Error::Value), "{source}");
    }
    // A general query to one group only; lengths between the versions (§8.1); sources that are not there.
    let set = |h: &mut ipv6::Header, _: &mut bool| h.destination = "ff02::99".parse().unwrap();
    assert_eq!(mld_parsed(&body[..28], set), Err(Error::Value));
    assert_eq!(mld_parsed(&body[..27], |_, _| {}), Err(Error::Length));
    assert_eq!(mld_parsed(&body[..23], |_, _| {}), Err(Error::Truncated));
    body[27] = 2;
    assert_eq!(mld_parsed(&body, |_, _| {}), Err(Error::Length));
    body[27] = 1;
    assert_eq!(
        mld_parsed(&body, |_, _| {}),
        Err(Error::Value),
        "general, with a source"
    );
    body[8..10].copy_from_slice(&[0xff, 2]);
    assert_eq!(mld_parsed(&body, |_, _| {}), Ok(Version::Third));
}

#[test]
fn mld_messages_are_as_rfc_9777_section_5_has_them() {
    let group: Ipv6Addr = "ff02::1:ff00:2".parse().unwrap();
    let source: Ipv6Addr = "fe80::2".parse().unwrap();
    let records = [Record {
        kind: Kind::ChangeToExclude,
        group: group.into(),
        sources: Vec::new(),
    }];
    let mut room = [0; 200];
    let len = mld::emit_report(source, &mut Pending::new(records.into()), &mut room);
    assert_eq!(len, mld::IP_HEADER + 8 + 20);
    let packet = &room[..len];
    let header = ipv6::Header::parse(packet).unwrap();
    assert_eq!((header.hop_limit, header.destination), (1, mld::ROUTERS_V2));
    let payload = header.payload(packet);
    let upper = ipv6::extension::walk(header.next_header, payload).unwrap();
    assert!(upper.router_alert && upper.protocol == Protocol::ICMPV6 && upper.offset == 8);
    let message = &payload[8..];
    assert_eq!(message[..2], [143, 0]);
    assert_eq!(message[4..12], [0, 0, 0, 1, 4, 0, 0, 0]);
    assert_eq!(message[12..], group.octets());
    assert_eq!(mld::parse(&header, message, true), Ok(Message::ForRouters));

    let len = mld::emit_old_report(source, group, &mut room);
    let header = ipv6::Header::parse(&room[..len]).unwrap();
    assert_eq!(header.destination, group);
    let message = &header.payload(&room[..len])[8..];
    assert_eq!(
        mld::parse(&header, message, true),
        Ok(Message::Report(group.into()))
    );
    let len = mld::emit_done(source, group, &mut room);
    let header = ipv6::Header::parse(&room[..len]).unwrap();
    assert_eq!(
        (header.destination, room[mld::IP_HEADER]),
        (mld::ALL_ROUTERS, 132)
    );
}
