//! Rules, and what they say of a packet. The work for one packet is bounded when the rules are read ([`WORK_MAX`]).

use std::net::IpAddr;

use proto::{time::Instant, wire::ipv4::Protocol};

use crate::driver::module::{Rejection, View};

/// Rules of one file at most.
pub const RULES_MAX: usize = 4096;
/// Rules that one packet is held against at most at one hook, those of chains that are jumped to each time that they are.
pub const WORK_MAX: usize = 8192;
/// Chains that lie within each other by jumps, at most: as nftables has it.
pub const DEPTH_MAX: usize = 16;

/// Where a chain is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    /// By its word.
    pub const ALL: [(&'static str, Self); 5] = [
        ("prerouting", Self::Prerouting),
        ("input", Self::Input),
        ("forward", Self::Forward),
        ("output", Self::Output),
        ("postrouting", Self::Postrouting),
    ];
}

/// What a flow is to a packet, a bit each, so that a rule names several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtState(pub u8);

impl CtState {
    pub const INVALID: Self = Self(1);
    pub const ESTABLISHED: Self = Self(2);
    pub const RELATED: Self = Self(4);
    pub const NEW: Self = Self(8);
    pub const ALL: [(&'static str, Self); 4] = [
        ("invalid", Self::INVALID),
        ("established", Self::ESTABLISHED),
        ("related", Self::RELATED),
        ("new", Self::NEW),
    ];
}

/// Numbers to 255, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers([u64; 4]);

impl Numbers {
    pub const fn add(&mut self, number: u8) {
        self.0[(number >> 6) as usize] |= 1 << (number & 63);
    }
    pub const fn has(&self, number: u8) -> bool {
        self.0[(number >> 6) as usize] >> (number & 63) & 1 == 1
    }
}

/// Ranges of some kind of number, in order, none of which overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges<T>(pub Vec<(T, T)>);

impl<T: Ord + Copy> Ranges<T> {
    pub fn has(&self, value: T) -> bool {
        let behind = self.0.partition_point(|&(first, _)| first <= value);
        behind > 0 && self.0[behind - 1].1 >= value
    }
}

/// How TCP flags are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flagged {
    /// One of these is set.
    Any(u8),
    /// Of these exactly those are set.
    Are { of: u8, set: u8 },
}

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    State(CtState),
    /// The name of the link it came by; with a last `*`, how that begins.
    Incoming(Vec<String>),
    Outgoing(Vec<String>),
    Protocol(Numbers),
    IsV4(bool),
    Mark(Ranges<u32>),
    /// Of the family `v4`.
    Source {
        v4: bool,
        among: Ranges<u128>,
    },
    Destination {
        v4: bool,
        among: Ranges<u128>,
    },
    SourcePort(Ranges<u16>),
    DestinationPort(Ranges<u16>),
    Flags(Flagged),
    IcmpType(Numbers),
}

/// A rate, as a bucket of tokens, in time: an empty one is `depth` nanoseconds from full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What a packet costs, nanoseconds.
    pub cost: u64,
    /// From empty to full, nanoseconds.
    pub depth: u64,
    /// `over`: it matches what is beyond the rate.
    pub is_over: bool,
    /// When it is full again.
    pub full_at: Instant,
}

impl Limit {
    fn matches(&mut self, now: Instant) -> bool {
        let missing = self.full_at.0.saturating_sub(now.0);
        let has_room = missing.saturating_add(self.cost) <= self.depth;
        if has_room {
            self.full_at = Instant(now.0.saturating_add(missing).saturating_add(self.cost));
        }
        has_room != self.is_over
    }
}

/// To where addresses and ports are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// First and last; `None`: as it is, or of the link.
    pub ips: Option<(IpAddr, IpAddr)>,
    pub ports: Option<(u16, u16)>,
}

/// How a rule ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Accept,
    Drop,
    Reject(Rejection),
    /// Back to the chain that jumped here; of a hook's own chain, to its policy.
    Return,
    /// To the chain of this number.
    Jump(usize),
    /// The source becomes this, or the address of the link that it leaves by.
    Source(Target),
    /// The destination becomes this, or the address of the link that it came by.
    Destination(Target),
}

/// A part of a rule, in the order of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Is(Test),
    Not(Test),
    Limit(Limit),
    Count,
    Log { prefix: String },
    End(End),
}

/// A rule, and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub line: usize,
    pub text: String,
    pub steps: Vec<Step>,
    pub packets: u64,
    pub bytes: u64,
}

/// How a chain is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub hook: Hook,
    pub is_nat: bool,
    pub priority: i32,
    pub drops: bool,
    /// What went to the policy.
    pub packets: u64,
    pub bytes: u64,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub table: String,
    pub name: String,
    /// The family of its table, where that is one.
    pub is_v4: Option<bool>,
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    pub chains: Vec<Chain>,
    /// The chains of hooks, in the order of their priorities.
    pub order: Vec<usize>,
}

/// What rules ask of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub view: View<'a>,
    pub incoming: Option<&'a str>,
    pub outgoing: Option<&'a str>,
    pub state: CtState,
    pub flags: Option<u8>,
    pub icmp_type: Option<u8>,
}

/// What the chains of a hook say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It passes.
    Accept,
    Drop,
    Reject(Rejection),
    Source(Target),
    Destination(Target),
}

impl Ruleset {
    /// Whether it has chains that translate at a hook.
    pub fn has_nat(&self, hook: Hook) -> bool {
        let mut bases = self.chains.iter().filter_map(|chain| chain.base);
        bases.any(|base| base.is_nat && base.hook == hook)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.chains.iter().map(|chain| chain.rules.len()).sum()
    }

    /// Holds a packet against the chains of a hook: of filters all, of translations until one decides.
    pub fn judge(&mut self, hook: Hook, is_nat: bool, facts: &Facts<'_>, now: Instant) -> Said {
        for at in 0..self.order.len() {
            let number = self.order[at];
            let Some(base) = self.chains[number].base else {
                continue;
            };
            if (base.hook, base.is_nat) != (hook, is_nat) || !self.is_for(number, facts) {
                continue;
            }
            let said = match self.walk(number, facts, now, 0) {
                None | Some(End::Return | End::Jump(_)) => self.policy(number, facts),
                Some(End::Accept) => Said::Accept,
                Some(End::Drop) => Said::Drop,
                Some(End::Reject(what)) => Said::Reject(what),
                Some(End::Source(target)) => Said::Source(target),
                Some(End::Destination(target)) => Said::Destination(target),
            };
            if said != Said::Accept {
                return said;
            }
        }
        Said::Accept
    }

    fn is_for(&self, number: usize, facts: &Facts<'_>) -> bool {
        let family = self.chains[number].is_v4;
        family.is_none_or(|v4| v4 == facts.view.source().is_ipv4())
    }

    fn policy(&mut self, number: usize, facts: &Facts<'_>) -> Said {
        let Some(base) = &mut self.chains[number].base else {
            return Said::Accept;
        };
        base.packets += 1;
        base.bytes += facts.view.len() as u64;
        if base.drops { Said::Drop } else { Said::Accept }
    }

    /// Goes through a chain. `None`: it ended, or said return.
    fn walk(
        &mut self,
        number: usize,
        facts: &Facts<'_>,
        now: Instant,
        depth: usize,
    ) -> Option<End> {
        for at in 0..self.chains[number].rules.len() {
            match self.chains[number].rules[at].apply(facts, now) {
                None => {}
                Some(End::Return) => return None,
                Some(End::Jump(to)) if depth < DEPTH_MAX => {
                    if let Some(end) = self.walk(to, facts, now, depth + 1) {
                        return Some(end);
                    }
                }
                Some(end) => return Some(end),
            }
        }
        None
    }
}

impl Rule {
    /// How it ends for a packet. `None`: it does not match, or goes on to the next rule.
    fn apply(&mut self, facts: &Facts<'_>, now: Instant) -> Option<End> {
        let Self {
            steps,
            packets,
            bytes,
            text,
            ..
        } = self;
        let len = facts.view.len() as u64;
        let (mut end, mut is_counted) = (None, false);
        for step in steps {
            let goes_on = match step {
                Step::Is(test) => test.matches(facts),
                Step::Not(test) => test.refutes(facts),
                Step::Limit(limit) => limit.matches(now),
                Step::Count => {
                    (*packets, *bytes) = (*packets + 1, *bytes + len);
                    is_counted = true;
                    true
                }
                Step::Log { prefix } => {
                    log(prefix, text, facts);
                    true
                }
                Step::End(how) => {
                    end = Some(*how);
                    true
                }
            };
            if !goes_on {
                return None;
            }
        }
        if !is_counted {
            (*packets, *bytes) = (*packets + 1, *bytes + len);
        }
        end
    }
}

impl Test {
    /// Whether a packet is as it asks.
    fn matches(&self, facts: &Facts<'_>) -> bool {
        let view = &facts.view;
        let named = |name: Option<&str>, names: &[String]| {
            name.is_some_and(|name| names.iter().any(|own| is_named(own, name)))
        };
        let ports = || view.ports();
        match self {
            Self::State(states) => states.0 & facts.state.0 != 0,
            Self::Incoming(names) => named(facts.incoming, names),
            Self::Outgoing(names) => named(facts.outgoing, names),
            Self::Protocol(among) => among.has(view.protocol().0),
            Self::IsV4(v4) => *v4 == view.source().is_ipv4(),
            Self::Mark(among) => among.has(view.mark()),
            Self::Source { v4, among } => is_among(*v4, among, view.source()),
            Self::Destination { v4, among } => is_among(*v4, among, view.destination()),
            Self::SourcePort(among) => ports().is_some_and(|ports| among.has(ports.0)),
            Self::DestinationPort(among) => ports().is_some_and(|ports| among.has(ports.1)),
            Self::Flags(how) => facts.flags.is_some_and(|flags| match *how {
                Flagged::Any(of) => flags & of != 0,
                Flagged::Are { of, set } => flags & of == set,
            }),
            Self::IcmpType(among) => facts.icmp_type.is_some_and(|kind| among.has(kind)),
        }
    }

    /// Whether it has what is asked for, as another. What has no such field neither matches nor refutes.
    fn refutes(&self, facts: &Facts<'_>) -> bool {
        let view = &facts.view;
        let has_it = match self {
            Self::State(_) | Self::Protocol(_) | Self::IsV4(_) | Self::Mark(_) => true,
            Self::Incoming(_) => facts.incoming.is_some(),
            Self::Outgoing(_) => facts.outgoing.is_some(),
            Self::Source { v4, .. } | Self::Destination { v4, .. } => {
                *v4 == view.source().is_ipv4()
            }
            Self::SourcePort(_) | Self::DestinationPort(_) => view.ports().is_some(),
            Self::Flags(_) => facts.flags.is_some(),
            Self::IcmpType(_) => facts.icmp_type.is_some(),
        };
        has_it && !self.matches(facts)
    }
}

fn is_named(own: &str, name: &str) -> bool {
    match own.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => own == name,
    }
}

fn is_among(v4: bool, among: &Ranges<u128>, ip: IpAddr) -> bool {
    v4 == ip.is_ipv4() && among.has(number(ip))
}

/// An address as a number, for ranges of its family.
pub const fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits() as u128,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The protocol of ICMP of a family.
pub const fn icmp_of(v4: bool) -> Protocol {
    if v4 { Protocol::ICMP } else { Protocol::ICMPV6 }
}

#[cold]
fn log(prefix: &str, rule: &str, facts: &Facts<'_>) {
    let view = &facts.view;
    let (source, destination) = view.ports().unwrap_or_default();
    tracing::info!(
        target: "netchan::firewall",
        rule,
        source = %view.source(), destination = %view.destination(),
        protocol = view.protocol().0, source_port = source, destination_port = destination,
        incoming = facts.incoming, outgoing = facts.outgoing, bytes = view.len(),
        "{prefix}"
    );
}
