//! Which sources of a group are heard: a socket's wish, and what an interface makes of many sockets' (RFC 9776 §3).

use alloc::vec::Vec;
use core::net::IpAddr;

/// Most sources that an interface's filter lists: 20 sockets that each name as many as Linux lets them (10 for IPv4, 64 for IPv6) fit.
/// Beyond, more is let in: each socket's own filter still holds.
pub const SOURCES_MAX: usize = 1_280;

/// How the sources of a filter are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// They alone are heard.
    #[default]
    Include,
    /// All others are heard.
    Exclude,
}

/// A filter: a mode, and sources in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    mode: Mode,
    sources: Vec<IpAddr>,
}

impl Filter {
    /// No source is heard: no member.
    pub const NO_SOURCE: Self = Self {
        mode: Mode::Include,
        sources: Vec::new(),
    };
    /// Every source is heard.
    pub const ANY_SOURCE: Self = Self {
        mode: Mode::Exclude,
        sources: Vec::new(),
    };

    /// A filter that names no source.
    pub const fn of(mode: Mode) -> Self {
        Self {
            mode,
            sources: Vec::new(),
        }
    }

    /// Its mode.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Its sources, in order.
    pub fn sources(&self) -> &[IpAddr] {
        &self.sources
    }

    /// Whether no source is heard.
    pub const fn admits_none(&self) -> bool {
        matches!(self.mode, Mode::Include) && self.sources.is_empty()
    }

    /// Whether `source` is on the list.
    pub fn names(&self, source: IpAddr) -> bool {
        self.sources.binary_search(&source).is_ok()
    }

    /// Whether `source` is heard.
    pub fn hears(&self, source: IpAddr) -> bool {
        self.names(source) == (self.mode == Mode::Include)
    }

    /// Adds a source; false if it was there.
    pub fn add(&mut self, source: IpAddr) -> bool {
        match self.sources.binary_search(&source) {
            Ok(_) => false,
            Err(at) => {
                self.sources.insert(at, source);
                true
            }
        }
    }

    /// Takes a source away; false if it was not there.
    pub fn remove(&mut self, source: IpAddr) -> bool {
        match self.sources.binary_search(&source) {
            Ok(at) => {
                self.sources.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// What an interface lets in for all of `filters` (RFC 9776 §3.2): if one of them excludes, all but what every excluding one
    /// excludes and no including one includes; else what any of them includes.
    pub fn merge<'a>(filters: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let by = |mode| filters.clone().filter(move |filter| filter.mode == mode);
        let included = by(Mode::Include).flat_map(|filter| filter.sources.iter().copied());
        let Some(first) = by(Mode::Exclude).min_by_key(|filter| filter.sources.len()) else {
            let mut sources: Vec<IpAddr> = included.collect();
            sources.sort_unstable();
            sources.dedup();
            if sources.len() > SOURCES_MAX {
                return Self::ANY_SOURCE;
            }
            return Self {
                mode: Mode::Include,
                sources,
            };
        };
        let everywhere = |source: &IpAddr| by(Mode::Exclude).all(|filter| filter.names(*source));
        let nowhere = |source: &IpAddr| !by(Mode::Include).any(|filter| filter.names(*source));
        let sources = first.sources.iter().copied();
        Self {
            mode: Mode::Exclude,
            sources: sources
                .filter(|source| everywhere(source) && nowhere(source))
                .take(SOURCES_MAX)
                .collect(),
        }
    }
}
