//! Owning an address alone: probing before its first use, announcing, defending. ARP's way (RFC
//! 5227) and IPv6's duplicate address detection (RFC 4862 §5.4) in one small machine.

use core::net::IpAddr;

use crate::ip::keyed::Random;
use crate::time::{Duration, Instant};

/// How carefully an address is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Probes before the address is used; 0: it is used at once (DupAddrDetectTransmits;
    /// PROBE_NUM).
    pub probes: u8,
    /// The first probe waits a random time up to this, so that machines that start together do not
    /// collide.
    pub wait_max: Duration,
    /// Shortest and longest time between two probes.
    pub interval: (Duration, Duration),
    /// From the last probe to the first use.
    pub settle: Duration,
    /// Announcements when the address is taken.
    pub announcements: u8,
    /// Between two announcements.
    pub announce_interval: Duration,
    /// A second conflict within this time is not defended against, but yielded to (RFC 5227 §2.4
    /// (b)).
    pub defend_interval: Duration,
}

impl Policy {
    /// RFC 5227 §1.1.
    pub const ARP: Self = Self {
        probes: 3,
        wait_max: Duration::from_secs(1),
        interval: (Duration::from_secs(1), Duration::from_secs(2)),
        settle: Duration::from_secs(2),
        announcements: 2,
        announce_interval: Duration::from_secs(2),
        defend_interval: Duration::from_secs(10),
    };
    /// RFC 4862 §5.1, §5.4.2; RFC 4861 §7.2.6 for the announcement.
    pub const NDP: Self = Self {
        probes: 1,
        wait_max: Duration::from_secs(1),
        interval: (Duration::from_secs(1), Duration::from_secs(1)),
        settle: Duration::from_secs(1),
        announcements: 1,
        announce_interval: Duration::from_secs(1),
        defend_interval: Duration::from_secs(10),
    };

    /// These timings, but the address is used at once and only announced: for a wire whose owner gave
    /// out the addresses.
    #[must_use]
    pub const fn without_probes(self) -> Self {
        Self { probes: 0, ..self }
    }

    /// The one of the address's family.
    #[must_use]
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::ARP,
            IpAddr::V6(_) => Self::NDP,
        }
    }
}

/// What the caller must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Say {
    /// An ARP probe, or a neighbour solicitation from `::`.
    Probe,
    /// An ARP announcement, or an unsolicited neighbour advertisement.
    Announce,
}

/// What a conflict leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Still ours: send one announcement.
    Defend,
    /// Not ours (any more): remove it from the interface, tell the user, abort its connections.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Probing { left: u8 },
    Settling,
    Announcing { left: u8 },
    Held,
    Lost,
}

/// The claim of one address on one link.
#[derive(Clone, Debug)]
pub struct Claim {
    ip: IpAddr,
    policy: Policy,
    phase: Phase,
    deadline: Instant,
    last_conflict: Option<Instant>,
}

impl Claim {
    /// Starts to claim `ip`; `random` spreads the first probe.
    pub fn new(ip: IpAddr, policy: Policy, now: Instant, random: &mut Random) -> Self {
        let (phase, deadline) = if policy.probes > 0 {
            let wait = between(Duration::ZERO, policy.wait_max, random);
            (
                Phase::Probing {
                    left: policy.probes,
                },
                now + wait,
            )
        } else {
            (
                Phase::Announcing {
                    left: policy.announcements,
                },
                now,
            )
        };
        Self {
            ip,
            policy,
            phase,
            deadline,
            last_conflict: None,
        }
    }

    /// The address.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Whether the address may be used: then it belongs into the interface's addresses.
    pub const fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Announcing { .. } | Phase::Held)
    }

    /// Whether the address turned out to be another's.
    pub const fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost)
    }

    /// When [`Self::on_timer`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        (!matches!(self.phase, Phase::Held | Phase::Lost)).then_some(self.deadline)
    }

    /// Lets time pass; to be repeated until it answers `None`. Look at [`Self::is_usable`]
    /// afterwards.
    pub fn on_timer(&mut self, now: Instant, random: &mut Random) -> Option<Say> {
        if now < self.deadline {
            return None;
        }
        match self.phase {
            Phase::Probing { left } => {
                let (shortest, longest) = self.policy.interval;
                if left > 1 {
                    self.phase = Phase::Probing { left: left - 1 };
                    self.deadline = now + between(shortest, longest, random);
                } else {
                    self.phase = Phase::Settling;
                    self.deadline = now + self.policy.settle;
                }
                Some(Say::Probe)
            }
            Phase::Settling => {
                self.phase = Phase::Announcing {
                    left: self.policy.announcements,
                };
                self.on_timer(now, random)
            }
            Phase::Announcing { left: 0 } => {
                self.phase = Phase::Held;
                None
            }
            Phase::Announcing { left } => {
                self.phase = if left > 1 {
                    Phase::Announcing { left: left - 1 }
                } else {
                    Phase::Held
                };
                self.deadline = now + self.policy.announce_interval;
                Some(Say::Announce)
            }
            Phase::Held | Phase::Lost => None,
        }
    }

    /// Another host used or probed our address. `uses`: it uses it (its ARP sender address or its
    /// advertisement); false: it only probes for it, which conflicts while we probe too (RFC 5227
    /// §2.1.1, RFC 4862 §5.4.3). `None`: no conflict, answer the probe as any request.
    pub fn on_conflict(&mut self, uses: bool, now: Instant) -> Option<Verdict> {
        match self.phase {
            Phase::Probing { .. } | Phase::Settling => {
                self.phase = Phase::Lost;
                Some(Verdict::Lost)
            }
            Phase::Announcing { .. } | Phase::Held if uses => {
                // RFC 5227 §2.4 (b): defend once, yield to a host that insists. IPv6 never yields an
                // address that has passed detection (RFC 4862 §5.4.5 asks to log it): its defence
                // is the answer to every solicitation.
                let insists = self
                    .last_conflict
                    .is_some_and(|t| now.since(t) < self.policy.defend_interval);
                self.last_conflict = Some(now);
                match (self.ip, insists) {
                    (IpAddr::V4(_), true) => {
                        self.phase = Phase::Lost;
                        Some(Verdict::Lost)
                    }
                    (IpAddr::V6(_), true) => None,
                    (_, false) => Some(Verdict::Defend),
                }
            }
            Phase::Announcing { .. } | Phase::Held | Phase::Lost => None,
        }
    }
}

/// A time drawn evenly between two.
fn between(shortest: Duration, longest: Duration, random: &mut Random) -> Duration {
    let spread = longest.saturating_sub(shortest).as_nanos();
    shortest + Duration::from_nanos(random.below(u64::try_from(spread).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
