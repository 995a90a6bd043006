//! One rule of a file: what it asks for, what it does, how it ends.
//!
//! ```text
//! [meta] iif|oif|iifname|oifname NAME · meta l4proto|nfproto|mark · ip|ip6 saddr|daddr · ip protocol
//! tcp|udp|th sport|dport · tcp flags · icmp|icmpv6 type · ct state
//! limit rate [over] N/second [burst N packets] · counter · log [prefix TEXT]
//! accept · drop · return · jump CHAIN · reject [with …] · snat|dnat to … · masquerade · redirect
//! ```

use proto::{time::Instant, wire::ipv4::Protocol};

use super::{
    cursor::{Cursor, named},
    rules::{CtState, End, Hook, Limit, Numbers, Step, Test, icmp_of},
    target,
    values::{addresses, flags, icmp_types, names, number, numbers, ports, protocols, set},
    words::{Fault, Word},
};
use crate::driver::module::Rejection;

/// Parts of a rule at most.
const STEPS_MAX: usize = 32;

/// The chain that a rule stands in.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Its table's family, where that is one.
    pub is_v4: Option<bool>,
    /// Where it is hooked in, and whether it translates.
    pub base: Option<(Hook, bool)>,
}

/// A rule that was read.
pub struct Read {
    pub steps: Vec<Step>,
    /// The chain that it jumps to, by its last step.
    pub jump: Option<Word>,
}

/// A rule that is being read.
struct Draft {
    scope: Scope,
    /// What the rule is about as far as it is read: families and protocols that contradict each other match nothing.
    is_v4: Option<bool>,
    protocol: Option<Protocol>,
    /// `meta l4proto` or `th` has said that there are ports.
    has_ports: bool,
    steps: Vec<Step>,
    jump: Option<Word>,
}

/// Reads a rule, up to its end.
///
/// # Errors
/// What is wrong with it, and where.
pub fn read(cursor: &mut Cursor, scope: Scope) -> Result<Read, Fault> {
    let mut draft = Draft {
        scope,
        is_v4: scope.is_v4,
        protocol: None,
        has_ports: false,
        steps: Vec::new(),
        jump: None,
    };
    while !cursor.here().ends() && !cursor.here().is("}") && !cursor.is_over() {
        let word = cursor.take();
        if matches!(draft.steps.last(), Some(Step::End(_))) {
            return Err(word.fault("the rule has ended before: nothing comes behind its verdict"));
        }
        if draft.steps.len() >= STEPS_MAX {
            return Err(word.fault(format!("more than {STEPS_MAX} parts in one rule")));
        }
        draft.part(&word, cursor)?;
    }
    if draft.steps.is_empty() {
        return Err(cursor.here().fault("a rule is missing"));
    }
    Ok(Read {
        steps: draft.steps,
        jump: draft.jump,
    })
}

impl Draft {
    fn part(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        if word.is_quoted {
            return Err(word.fault("no part of a rule begins with a quotation"));
        }
        match word.text.as_str() {
            "meta" => {
                let word = cursor.take();
                match word.text.as_str() {
                    "iif" | "iifname" | "oif" | "oifname" => self.link(&word, cursor),
                    _ => self.meta(&word, cursor),
                }
            }
            "iif" | "iifname" | "oif" | "oifname" => self.link(word, cursor),
            "ip" | "ip6" => self.address(word, cursor),
            "tcp" | "udp" | "th" => self.transport(word, cursor),
            "icmp" | "icmpv6" => self.icmp(word, cursor),
            "ct" => {
                cursor.want("state", "of `ct`, `ct state` is supported")?;
                let (is, states) = set(cursor, |word| named(word, &CtState::ALL))?;
                let all = states.into_iter().fold(0, |all, state| all | state.0);
                self.test(is, Test::State(CtState(all)))
            }
            "limit" => self.limit(cursor),
            "counter" => self.counter(cursor),
            "log" => self.log(cursor),
            _ => self.verdict(word, cursor),
        }
    }

    fn test(&mut self, is: bool, test: Test) -> Result<(), Fault> {
        self.steps
            .push(if is { Step::Is(test) } else { Step::Not(test) });
        Ok(())
    }

    /// The rule is about a family: what was said before must agree.
    fn family(&mut self, word: &Word, v4: bool) -> Result<(), Fault> {
        if self.is_v4.is_some_and(|before| before != v4) {
            return Err(word.fault("the rule is about the other family, ip or ip6, already"));
        }
        self.is_v4 = Some(v4);
        Ok(())
    }

    /// The rule is about a protocol, likewise; it asks for it where it has not yet.
    fn transport_is(&mut self, word: &Word, protocol: Protocol) -> Result<(), Fault> {
        match self.protocol {
            Some(before) if before != protocol => {
                return Err(word.fault("the rule is about another protocol already"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.protocol = Some(protocol);
        let mut one = Numbers::default();
        one.add(protocol.0);
        self.test(true, Test::Protocol(one))
    }

    fn link(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        let has_patterns = word.text.ends_with("name");
        let (is, names) = names(cursor, has_patterns)?;
        let test = match word.text.starts_with('i') {
            true => Test::Incoming(names),
            false => Test::Outgoing(names),
        };
        self.test(is, test)
    }

    fn meta(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        match word.text.as_str() {
            "l4proto" => {
                let (is, protocols, one) = protocols(cursor)?;
                if let Some(one) = one.filter(|_| is) {
                    if self.protocol.is_some_and(|before| before != one) {
                        return Err(word.fault("the rule is about another protocol already"));
                    }
                    self.protocol = Some(one);
                }
                let ports = [Protocol::TCP, Protocol::UDP];
                self.has_ports |= is && ports.iter().any(|p| protocols.has(p.0));
                self.test(is, Test::Protocol(protocols))
            }
            "nfproto" if self.scope.is_v4.is_some() => {
                Err(word.fault("this asks for a family: in a table of one it has no use"))
            }
            "nfproto" => {
                let word = cursor.take();
                let v4 = named(&word, &[("ipv4", true), ("ipv6", false)])?;
                self.family(&word, v4)?;
                self.test(true, Test::IsV4(v4))
            }
            "mark" => {
                let (is, marks) = numbers(cursor)?;
                self.test(is, Test::Mark(marks))
            }
            _ => Err(word.fault(
                "of `meta`, iif, oif, iifname, oifname, l4proto, nfproto and mark are supported",
            )),
        }
    }

    fn address(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        let v4 = word.text == "ip";
        self.family(word, v4)?;
        let field = cursor.take();
        match field.text.as_str() {
            "saddr" => {
                let (is, among) = addresses(cursor, v4)?;
                self.test(is, Test::Source { v4, among })
            }
            "daddr" => {
                let (is, among) = addresses(cursor, v4)?;
                self.test(is, Test::Destination { v4, among })
            }
            "protocol" if v4 => {
                self.test(true, Test::IsV4(true))?;
                self.meta(
                    &Word {
                        text: "l4proto".to_owned(),
                        ..field
                    },
                    cursor,
                )
            }
            _ => Err(field.fault(match v4 {
                true => "of `ip`, saddr, daddr and protocol are supported",
                false => "of `ip6`, saddr and daddr are supported",
            })),
        }
    }

    fn transport(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        match word.text.as_str() {
            "tcp" => self.transport_is(word, Protocol::TCP)?,
            "udp" => self.transport_is(word, Protocol::UDP)?,
            _ if !self.has_ports && self.protocol.is_none() => {
                return Err(word.fault("say first which protocol: `meta l4proto { tcp, udp }`"));
            }
            _ => {}
        }
        self.has_ports = true;
        let field = cursor.take();
        match field.text.as_str() {
            "sport" => {
                let (is, among) = ports(cursor)?;
                self.test(is, Test::SourcePort(among))
            }
            "dport" => {
                let (is, among) = ports(cursor)?;
                self.test(is, Test::DestinationPort(among))
            }
            "flags" if word.is("tcp") => {
                let (is, how) = flags(cursor)?;
                self.test(is, Test::Flags(how))
            }
            _ => Err(field.fault(match word.is("tcp") {
                true => "of `tcp`, sport, dport and flags are supported",
                false => "sport and dport are supported",
            })),
        }
    }

    fn icmp(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        let v4 = word.is("icmp");
        self.family(word, v4)?;
        self.transport_is(word, icmp_of(v4))?;
        cursor.want("type", "of ICMP, `type` is supported")?;
        let (is, types) = icmp_types(cursor, v4)?;
        self.test(is, Test::IcmpType(types))
    }

    fn counter(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        // What `nft list ruleset` writes; counting begins anew with each file.
        if cursor.take_if("packets") {
            number::<u64>(&cursor.take())?;
            cursor.want("bytes", "`counter packets N bytes N`")?;
            number::<u64>(&cursor.take())?;
        }
        if self.steps.contains(&Step::Count) {
            return Err(cursor.last().fault("the rule counts already"));
        }
        self.steps.push(Step::Count);
        Ok(())
    }

    fn log(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        let mut prefix = String::new();
        loop {
            if cursor.take_if("prefix") {
                let word = cursor.take();
                if !word.is_quoted || word.text.len() > 127 {
                    return Err(
                        word.fault("a prefix is text between quotation marks, 127 bytes at most")
                    );
                }
                prefix = word.text;
            } else if cursor.take_if("level") {
                let levels = [
                    "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug",
                ];
                named(&cursor.take(), &levels.map(|level| (level, ())))?;
            } else {
                break;
            }
        }
        self.steps.push(Step::Log { prefix });
        Ok(())
    }

    fn limit(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        const SECOND: u64 = 1_000_000_000;
        let so = "`limit rate 10/second`";
        cursor.want("rate", so)?;
        let is_over = cursor.take_if("over");
        let word = cursor.take();
        let (count, unit) = word.text.split_once('/').ok_or_else(|| word.fault(so))?;
        let every = match unit {
            "second" => SECOND,
            "minute" => 60 * SECOND,
            "hour" => 3600 * SECOND,
            "day" => 86_400 * SECOND,
            _ => {
                return Err(word.fault(
                    "N/second, N/minute, N/hour or N/day; rates of bytes are not supported",
                ));
            }
        };
        let count: u64 = count
            .parse()
            .ok()
            .filter(|n| (1..=1_000_000_000).contains(n))
            .ok_or_else(|| word.fault("a rate is 1 to 1,000,000,000 packets"))?;
        let mut burst = 5; // as nftables has it
        if cursor.take_if("burst") {
            let word = cursor.take();
            burst = number::<u64>(&word)?;
            if !(1..=1_000_000).contains(&burst) {
                return Err(word.fault("1 to 1,000,000 packets"));
            }
            cursor.want("packets", "`burst N packets`")?;
        }
        let cost = every.div_ceil(count).max(1);
        self.steps.push(Step::Limit(Limit {
            cost,
            depth: cost.saturating_mul(burst),
            is_over,
            full_at: Instant::ZERO,
        }));
        Ok(())
    }

    fn verdict(&mut self, word: &Word, cursor: &mut Cursor) -> Result<(), Fault> {
        let is_nat = self.scope.base.is_some_and(|base| base.1);
        let end = match word.text.as_str() {
            "accept" => End::Accept,
            "drop" if is_nat => return Err(word.fault("a chain that translates drops nothing")),
            "drop" => End::Drop,
            "return" => End::Return,
            "jump" => {
                let to = cursor.take();
                if to.is_quoted || to.ends() || to.is("{") {
                    return Err(to.fault("`jump CHAIN`"));
                }
                self.jump = Some(to);
                End::Return // until all chains are known
            }
            "reject" if self.scope.base.is_none_or(|base| base.1) => {
                return Err(word.fault(
                    "`reject` stands in a filter's own chain, at input, forward or output",
                ));
            }
            "reject" => End::Reject(self.rejection(cursor)?),
            "snat" | "dnat" | "masquerade" | "redirect" => {
                let hook = match word.text.as_str() {
                    "snat" | "masquerade" => Hook::Postrouting,
                    _ => Hook::Prerouting,
                };
                if self.scope.base != Some((hook, true)) {
                    let why = match hook {
                        Hook::Postrouting => {
                            "this stands in a chain of `type nat hook postrouting`"
                        }
                        _ => "this stands in a chain of `type nat hook prerouting`",
                    };
                    return Err(word.fault(why));
                }
                let has_ports =
                    self.has_ports || matches!(self.protocol, Some(Protocol::TCP | Protocol::UDP));
                let (end, v4) = target::read(cursor, word, self.is_v4, has_ports)?;
                if let Some(v4) = v4 {
                    self.family(word, v4)?;
                    self.test(true, Test::IsV4(v4))?;
                }
                end
            }
            _ => return Err(word.fault("no match, statement or verdict that is supported here")),
        };
        self.steps.push(Step::End(end));
        Ok(())
    }

    fn rejection(&mut self, cursor: &mut Cursor) -> Result<Rejection, Fault> {
        if !cursor.take_if("with") {
            return Ok(Rejection::Port);
        }
        let word = cursor.take();
        match word.text.as_str() {
            "tcp" => {
                self.transport_is(&word, Protocol::TCP)?;
                cursor.want("reset", "`reject with tcp reset`")?;
                return Ok(Rejection::Reset);
            }
            "icmp" | "icmpv6" => {
                let v4 = word.is("icmp");
                self.family(&word, v4)?;
                self.test(true, Test::IsV4(v4))?;
            }
            "icmpx" if self.scope.is_v4.is_none() => {}
            "icmpx" => return Err(word.fault("this is for tables of `inet`: write icmp or icmpv6")),
            _ => return Err(word.fault("tcp reset, icmp, icmpv6 or icmpx")),
        }
        cursor.take_if("type");
        let kind = cursor.take();
        let (port, prohibited) = (Rejection::Port, Rejection::Prohibited);
        let (host, net) = (Rejection::Host, Rejection::Net);
        match word.text.as_str() {
            "icmp" => named(
                &kind,
                &[
                    ("port-unreachable", port),
                    ("host-unreachable", host),
                    ("net-unreachable", net),
                    ("admin-prohibited", prohibited),
                ],
            ),
            "icmpv6" => named(
                &kind,
                &[
                    ("port-unreachable", port),
                    ("addr-unreachable", host),
                    ("no-route", net),
                    ("admin-prohibited", prohibited),
                ],
            ),
            _ => named(
                &kind,
                &[
                    ("port-unreachable", port),
                    ("host-unreachable", host),
                    ("no-route", net),
                    ("admin-prohibited", prohibited),
                ],
            ),
        }
    }
}
