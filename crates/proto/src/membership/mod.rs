//! Multicast membership of one interface in one family: which groups it is in, and what it tells the routers of that. IGMPv3 (RFC
//! 9776) with versions 2 and 1, MLDv2 (RFC 9777) with version 1: one machine, for they differ in numbers alone. Sending and
//! the check of what came in are others' work (`wire::igmp`, `wire::mld`).

mod filter;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Bound;

pub use self::filter::{Filter, Mode, SOURCES_MAX};
use crate::ip::keyed::{Random, Seed};
use crate::time::{Duration, Instant};
pub use crate::wire::membership::{Kind, Pending, Query, Record, Version};
use crate::wire::{igmp, mld};

/// Groups of one interface and family, at most.
pub const GROUPS_MAX: usize = 4_096;
/// Sources of one group-and-source-specific query that are remembered until it is answered; of more, the answer is about the group.
const ASKED_MAX: usize = 128;
/// RFC 9776 §8.1, §8.2, §8.11; RFC 9777 §9.1, §9.2, §9.11.
const ROBUSTNESS: u8 = 2;
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// RFC 2236 §8.10; RFC 2710 §7.10 has the same ten seconds.
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);
/// No query is answered sooner than within this time, whatever it says: a flood of queries shares its answers.
const RESPONSE_LEAST: Duration = Duration::from_millis(10);

/// Groups that one call does something for: what a query asks of all of them is done bit by bit, or one packet would cost as much as thousands.
pub const GROUPS_A_TURN: usize = 32;
/// Then the next ones have their turn: 4,096 groups in 128 ms.
const NEXT_TURN: Duration = Duration::from_millis(1);

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// A report of the third generation, in as many packets as it takes.
    Report(Vec<Record>),
    /// A report of an older version, to the group.
    Join(Version, IpAddr),
    /// A leave (IGMPv2) or done (MLDv1).
    Leave(IpAddr),
}

/// An answer that waits for its time.
#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    /// The sources asked for; none: the group.
    sources: Vec<IpAddr>,
}

/// What is known of one group.
#[derive(Clone, Debug)]
struct Group {
    filter: Filter,
    /// Reports that still have to say the new mode (RFC 9776 §5.1); in an older version, reports still to be sent unasked.
    mode_left: u8,
    /// Sources whose change still has to be reported, and how often.
    changed: Vec<(IpAddr, u8)>,
    /// When the next of these goes.
    resend_at: Instant,
    answer: Option<Answer>,
    /// Of an older version: we were the last to report, and have to say when we leave (RFC 2236 §6).
    reported_last: bool,
    /// Where it stands in [`Membership::due`]; [`Instant::FAR`]: nowhere.
    listed: Instant,
    /// The [`Membership::era`] that what is to be sent is of: of an earlier one, nothing is.
    era: u32,
}

impl Group {
    const fn new(era: u32) -> Self {
        Self {
            filter: Filter::NO_SOURCE,
            mode_left: 0,
            changed: Vec::new(),
            resend_at: Instant::FAR,
            answer: None,
            reported_last: false,
            listed: Instant::FAR,
            era,
        }
    }

    /// All that is to be said of it has been said.
    const fn is_spent(&self) -> bool {
        self.filter.admits_none() && self.mode_left == 0 && self.changed.is_empty()
    }

    fn deadline(&self) -> Instant {
        let answer = self.answer.as_ref().map_or(Instant::FAR, |a| a.at);
        self.resend_at.min(answer)
    }

    /// Cancels the reports that were to be sent.
    fn cancel_reports(&mut self) {
        (self.mode_left, self.resend_at, self.answer) = (0, Instant::FAR, None);
        self.changed = Vec::new();
    }

    /// Notes the change from `old` to the filter now, to be reported `times` (RFC 9776 §5.1).
    fn note_change(&mut self, old: &Filter, times: u8) {
        if old.mode() != self.filter.mode() {
            // Its list is the whole new one: no source needs to be said apart.
            self.mode_left = times;
            self.changed = Vec::new();
            return;
        }
        let gone = old.sources().iter().filter(|s| !self.filter.names(**s));
        let come = self.filter.sources().iter().filter(|s| !old.names(**s));
        for &source in gone.chain(come) {
            match self.changed.binary_search_by_key(&source, |c| c.0) {
                Ok(at) => self.changed[at].1 = times,
                Err(at) => self.changed.insert(at, (source, times)),
            }
        }
        if self.changed.len() > SOURCES_MAX {
            // The whole list says it, too.
            (self.mode_left, self.changed) = (times, Vec::new());
        }
    }

    /// The state-change records that go now; each report of a change counts.
    fn take_change(&mut self, group: IpAddr, out: &mut Vec<Record>) {
        if self.mode_left > 0 {
            self.mode_left -= 1;
            let kind = match self.filter.mode() {
                Mode::Include => Kind::ChangeToInclude,
                Mode::Exclude => Kind::ChangeToExclude,
            };
            return out.push(record(kind, group, self.filter.sources().to_vec()));
        }
        let heard = |heard: bool| {
            let sources = self.changed.iter().map(|c| c.0);
            let list: Vec<IpAddr> = sources.filter(|s| self.filter.hears(*s) == heard).collect();
            list
        };
        let (allow, block) = (heard(true), heard(false));
        for (kind, sources) in [
            (Kind::AllowNewSources, allow),
            (Kind::BlockOldSources, block),
        ] {
            if !sources.is_empty() {
                out.push(record(kind, group, sources));
            }
        }
        self.changed.iter_mut().for_each(|c| c.1 -= 1);
        self.changed.retain(|c| c.1 > 0);
    }

    /// What a general or a group-specific query is told.
    fn current(&self, group: IpAddr) -> Record {
        let kind = match self.filter.mode() {
            Mode::Include => Kind::ModeIsInclude,
            Mode::Exclude => Kind::ModeIsExclude,
        };
        record(kind, group, self.filter.sources().to_vec())
    }

    /// What a query for `asked` is told, if anything (RFC 9776 §5.2).
    fn current_of(&self, group: IpAddr, asked: &[IpAddr]) -> Option<Record> {
        if asked.is_empty() {
            return (!self.filter.admits_none()).then(|| self.current(group));
        }
        let heard = asked.iter().copied().filter(|s| self.filter.hears(*s));
        let sources: Vec<IpAddr> = heard.collect();
        (!sources.is_empty()).then(|| record(Kind::ModeIsInclude, group, sources))
    }
}

const fn record(kind: Kind, group: IpAddr, sources: Vec<IpAddr>) -> Record {
    Record {
        kind,
        group,
        sources,
    }
}

/// All groups are being gone through, some in each turn: for the answer to a general query or, in the older versions, to give each its moment.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The last that had its turn.
    behind: Option<IpAddr>,
    /// When the next ones have theirs.
    at: Instant,
    /// Of the older versions: within which time each answers.
    within: Duration,
}

/// The membership of one interface in one family.
#[derive(Clone, Debug)]
pub struct Membership {
    groups: BTreeMap<IpAddr, Group>,
    /// Groups that have something to send, by its time: a packet looks at none but those that it is about.
    due: BTreeSet<(Instant, IpAddr)>,
    /// Queriers of older versions are there until then (RFC 9776 §7.2.1).
    first_until: Instant,
    second_until: Instant,
    /// The version we speak.
    version: Version,
    /// Grows with each change of the version.
    era: u32,
    /// When a general query is answered.
    general: Instant,
    round: Option<Round>,
    robustness: u8,
    query_interval: Duration,
    random: Random,
    /// When [`Self::on_timer`] has something to do.
    next: Instant,
    /// Groups looked at.
    #[cfg(test)]
    looked: usize,
}

impl Membership {
    /// In no group.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            groups: BTreeMap::new(),
            due: BTreeSet::new(),
            first_until: Instant::ZERO,
            second_until: Instant::ZERO,
            version: Version::Third,
            era: 0,
            general: Instant::FAR,
            round: None,
            robustness: ROBUSTNESS,
            query_interval: QUERY_INTERVAL,
            random: Random::new(seed),
            next: Instant::FAR,
            #[cfg(test)]
            looked: 0,
        }
    }

    /// The version we speak: that of the oldest querier heard lately.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The groups and what is heard in each.
    pub fn groups(&self) -> impl Iterator<Item = (IpAddr, &Filter)> {
        let all = self
            .groups
            .iter()
            .map(|(group, entry)| (*group, &entry.filter));
        all.filter(|(_, filter)| !filter.admits_none())
    }

    /// When [`Self::on_timer`] wants to be called; [`Instant::FAR`]: never.
    pub const fn deadline(&self) -> Instant {
        self.next
    }

    /// Sets what is heard in `group`, and tells the routers of the change. False: there are [`GROUPS_MAX`] already.
    pub fn set(
        &mut self,
        group: IpAddr,
        filter: Filter,
        now: Instant,
        out: &mut impl FnMut(Say),
    ) -> bool {
        self.grow_young(now);
        if !self.groups.contains_key(&group) {
            if filter.admits_none() {
                return true;
            }
            if !self.has_room() {
                return false;
            }
            self.groups.insert(group, Group::new(self.era));
        }
        let times = self.robustness;
        let Some(entry) = self.entry(group) else {
            return false;
        };
        let old = core::mem::replace(&mut entry.filter, filter);
        if old != entry.filter && !is_silent(group) {
            match self.version {
                Version::Third => {
                    let mut records = Vec::new();
                    if let Some(entry) = self.entry(group) {
                        entry.note_change(&old, times);
                    }
                    self.say_change(group, now, &mut records);
                    out(Say::Report(records));
                }
                older => self.change_old(group, &old, older, now, out),
            }
        }
        self.settle(group);
        true
    }

    /// Whether there may be one more group. Those of which all is said are looked for where there may not.
    fn has_room(&mut self) -> bool {
        if self.groups.len() >= GROUPS_MAX {
            let all: Vec<IpAddr> = self.groups.keys().copied().collect();
            for group in all {
                self.entry(group);
                self.settle(group);
            }
        }
        self.groups.len() < GROUPS_MAX
    }

    /// What is known of a group. A change of the version cancels all that was to be sent (RFC 9776 §7.2.1).
    fn entry(&mut self, group: IpAddr) -> Option<&mut Group> {
        #[cfg(test)]
        {
            self.looked += 1;
        }
        let entry = self.groups.get_mut(&group)?;
        if entry.era != self.era {
            entry.cancel_reports();
            entry.era = self.era;
        }
        Some(entry)
    }

    /// Adds the state-change records of a group that go now, and says when the next ones go.
    fn say_change(&mut self, group: IpAddr, now: Instant, out: &mut Vec<Record>) {
        let again = soon(&mut self.random, UNSOLICITED_INTERVAL, now);
        let Some(entry) = self.entry(group) else {
            return;
        };
        entry.take_change(group, out);
        let more = entry.mode_left > 0 || !entry.changed.is_empty();
        entry.resend_at = if more { again } else { Instant::FAR };
    }

    /// A change in the manner of the older versions, which know no sources.
    fn change_old(
        &mut self,
        group: IpAddr,
        old: &Filter,
        version: Version,
        now: Instant,
        out: &mut impl FnMut(Say),
    ) {
        let times = self.robustness;
        let Some(entry) = self.entry(group) else {
            return;
        };
        match (old.admits_none(), entry.filter.admits_none()) {
            (true, false) => {
                // RFC 2236 §3: at once, and once or twice more.
                entry.mode_left = times;
                self.join_old(group, version, now, out);
            }
            (false, true) => {
                let says = entry.reported_last && version == Version::Second;
                entry.cancel_reports();
                if says {
                    out(Say::Leave(group));
                }
            }
            _ => {}
        }
    }

    /// Reports a group unasked, in the manner of the older versions.
    fn join_old(
        &mut self,
        group: IpAddr,
        version: Version,
        now: Instant,
        out: &mut impl FnMut(Say),
    ) {
        let again = soon(&mut self.random, UNSOLICITED_INTERVAL_OLD, now);
        let Some(entry) = self.entry(group) else {
            return;
        };
        entry.mode_left = entry.mode_left.saturating_sub(1);
        entry.reported_last = true;
        out(Say::Join(version, group));
        let more = entry.mode_left > 0;
        entry.resend_at = if more { again } else { Instant::FAR };
    }

    /// A router asks.
    pub fn on_query(&mut self, query: &Query<'_>, now: Instant) {
        if query.version == Version::Third {
            // RFC 9776 §4.1.6, §4.1.7: the Querier's values hold for every host.
            if query.robustness > 0 {
                self.robustness = query.robustness;
            }
            if !query.interval.is_zero() {
                self.query_interval = query.interval;
            }
        }
        // RFC 9776 §8.12: the Older Version Querier Present Timeout.
        let until = now + self.query_interval * self.robustness.into() + query.max_response;
        match query.version {
            Version::First => self.first_until = until,
            Version::Second => self.second_until = until,
            Version::Third => {}
        }
        self.grow_young(now);
        let within = query.max_response.max(RESPONSE_LEAST);
        match (self.version, query.group) {
            (Version::Third, _) => self.ask(query, within, now),
            (_, Some(group)) => self.ask_old(group, within, now),
            (_, None) => self.ask_all_old(within, now),
        }
        match query.group {
            Some(group) => self.settle(group),
            None => self.look(),
        }
    }

    /// RFC 9776 §5.2, RFC 9777 §6.2: when the answer goes, by the rules' own numbers.
    fn ask(&mut self, query: &Query<'_>, within: Duration, now: Instant) {
        let at = soon(&mut self.random, within, now);
        if self.general <= at {
            return; // 1
        }
        let Some(group) = query.group else {
            self.general = at; // 2
            return;
        };
        let Some(entry) = self.entry(group) else {
            return;
        };
        if entry.filter.admits_none() || is_silent(group) {
            return;
        }
        let mut asked: Vec<IpAddr> = query.sources.iter().take(ASKED_MAX + 1).collect();
        asked.sort_unstable();
        asked.dedup();
        if asked.len() > ASKED_MAX {
            asked.clear();
        }
        match &mut entry.answer {
            None => entry.answer = Some(Answer { at, sources: asked }), // 3
            Some(answer) => {
                answer.at = answer.at.min(at);
                if answer.sources.is_empty() || asked.is_empty() {
                    answer.sources = Vec::new(); // 4
                    return;
                }
                answer.sources.append(&mut asked); // 5
                answer.sources.sort_unstable();
                answer.sources.dedup();
                if answer.sources.len() > ASKED_MAX {
                    answer.sources = Vec::new();
                }
            }
        }
    }

    /// RFC 2236 §3, RFC 2710 §4: a timer for each group, which a later query can only shorten.
    fn ask_old(&mut self, group: IpAddr, within: Duration, now: Instant) {
        let at = soon(&mut self.random, within, now);
        let Some(entry) = self.entry(group) else {
            return;
        };
        let asked = !entry.filter.admits_none() && !is_silent(group);
        if asked && entry.answer.as_ref().is_none_or(|a| a.at > now + within) {
            let sources = Vec::new();
            entry.answer = Some(Answer { at, sources });
        }
    }

    /// [`Self::ask_old`] for all groups. Queries that come while these have their turns share them, or the last groups would never have theirs.
    fn ask_all_old(&mut self, within: Duration, now: Instant) {
        if let Some(round) = &mut self.round {
            round.within = round.within.min(within);
            return;
        }
        self.round = Some(Round {
            behind: None,
            at: now,
            within,
        });
        self.go_on(now, &mut Vec::new());
    }

    /// Another host has reported `group` in an older version: then we need not (RFC 2236 §3, RFC 2710 §4).
    pub fn on_report(&mut self, group: IpAddr, now: Instant) {
        self.grow_young(now);
        if self.version == Version::Third {
            return;
        }
        if let Some(entry) = self.entry(group) {
            entry.cancel_reports();
            entry.reported_last = false;
        }
        self.settle(group);
    }

    /// Lets time pass. What is due and has not had its turn stays due.
    pub fn on_timer(&mut self, now: Instant, out: &mut impl FnMut(Say)) {
        if now < self.next {
            return;
        }
        self.grow_young(now);
        let (mut answers, mut changes) = (Vec::new(), Vec::new());
        if self.general <= now && self.round.is_none() {
            self.general = Instant::FAR;
            self.round = Some(Round {
                behind: None,
                at: now,
                within: Duration::ZERO,
            });
        }
        self.go_on(now, &mut answers);
        for _ in 0..GROUPS_A_TURN {
            let first = self.due.first().filter(|due| due.0 <= now);
            let Some(&(_, group)) = first else {
                break;
            };
            self.serve(group, now, (&mut answers, &mut changes), out);
            self.settle(group);
        }
        for records in [answers, changes] {
            if !records.is_empty() {
                out(Say::Report(records));
            }
        }
        self.look();
    }

    /// Sends what a group has to send by now.
    fn serve(
        &mut self,
        group: IpAddr,
        now: Instant,
        (answers, changes): (&mut Vec<Record>, &mut Vec<Record>),
        out: &mut impl FnMut(Say),
    ) {
        let version = self.version;
        let Some(entry) = self.entry(group) else {
            return;
        };
        if let Some(answer) = entry.answer.take_if(|a| a.at <= now) {
            match version {
                Version::Third => answers.extend(entry.current_of(group, &answer.sources)),
                older => {
                    entry.reported_last = true;
                    out(Say::Join(older, group));
                }
            }
        }
        if entry.resend_at <= now {
            match version {
                Version::Third => self.say_change(group, now, changes),
                older => self.join_old(group, older, now, out),
            }
        }
    }

    /// The next groups have their turn, if a round is under way.
    fn go_on(&mut self, now: Instant, answers: &mut Vec<Record>) {
        let Some(mut round) = self.round.take_if(|round| round.at <= now) else {
            return;
        };
        let mut work = 0;
        while work < GROUPS_A_TURN {
            let from = round.behind.map_or(Bound::Unbounded, Bound::Excluded);
            let mut others = self.groups.range((from, Bound::Unbounded));
            let Some((&group, entry)) = others.next() else {
                return;
            };
            #[cfg(test)]
            {
                self.looked += 1;
            }
            // Of lists of sources, some are as much work as a group.
            work += 1 + entry.filter.sources().len() / 8;
            if self.version == Version::Third {
                let says = Some(entry).filter(|_| !is_silent(group));
                answers.extend(says.and_then(|entry| entry.current_of(group, &[])));
            } else {
                self.ask_old(group, round.within, now);
                self.file(group);
            }
            round.behind = Some(group);
        }
        round.at = now + NEXT_TURN;
        self.round = Some(round);
    }

    /// Finds out which version is spoken now; a change cancels all that was to be sent (RFC 9776 §7.2.1).
    fn grow_young(&mut self, now: Instant) {
        let version = if now < self.first_until {
            Version::First
        } else if now < self.second_until {
            Version::Second
        } else {
            Version::Third
        };
        if version != self.version {
            self.version = version;
            self.general = Instant::FAR;
            self.round = None;
            self.era = self.era.wrapping_add(1);
        }
    }

    /// Puts a group where it is found when it is due, or forgets it, if all is said of it.
    fn file(&mut self, group: IpAddr) {
        let Some(entry) = self.groups.get_mut(&group) else {
            return;
        };
        let spent = entry.is_spent();
        let at = if spent {
            Instant::FAR
        } else {
            entry.deadline()
        };
        let before = core::mem::replace(&mut entry.listed, at);
        if before != at {
            self.due.remove(&(before, group));
            if at != Instant::FAR {
                self.due.insert((at, group));
            }
        }
        if spent {
            self.groups.remove(&group);
        }
    }

    /// Something was done with a group.
    fn settle(&mut self, group: IpAddr) {
        self.file(group);
        self.look();
    }

    /// Finds out when something is due.
    fn look(&mut self) {
        let first = self.due.first().map_or(Instant::FAR, |due| due.0);
        let general = self.round.map_or(self.general, |round| round.at);
        self.next = first.min(general);
    }
}

/// A random moment within `most` from now (RFC 9776 §5: in the open interval, which a nanosecond more or less is).
fn soon(random: &mut Random, most: Duration, now: Instant) -> Instant {
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    now + Duration::from_nanos(1 + random.below(most))
}

/// Whether membership in `group` is never reported.
fn is_silent(group: IpAddr) -> bool {
    igmp::is_silent(group) || mld::is_silent(group)
}

#[cfg(test)]
mod tests;
