//! The configuration file and the short forms of the command line, checked.
//!
//! What is wrong is said with file, line and key. What this release does not do is refused, not ignored.

mod example;
mod file;
pub(crate) mod keys;
mod lease;
mod module;
mod problem;
mod route;
#[cfg(test)]
mod tests;
mod words;

use std::{
    fmt, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use proto::tcp::SynCookies;

pub use lease::LeaseConfig;
pub use module::{ModuleConfig, ModuleKind};
use proto::tcp::{CongestionControl, EcnMode, FastOpenMode, IcmpWhileConnecting, MtuProbing};
pub use route::RouteConfig;

use crate::{
    link::specification::Specification,
    log::Verbosity,
    regime::{Dispatch, Regime, choice::Choice},
    trace::Level,
};

/// A checked configuration. [`Config::default`] is what an empty file means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `regime`, if it is there; see [`Config::choice`].
    pub regime: Option<Regime>,
    /// `giant`: puts the one lock around everything back (F1).
    pub giant: Option<bool>,
    /// `dispatch`: where protocol work runs (F5).
    pub dispatch: Option<Dispatch>,
    /// `shards`: how many, where the regime leaves it open, 1 to 64.
    pub shards: Option<usize>,
    /// `forwarding`: whether packets for other hosts are passed on between links.
    pub forwarding: Option<bool>,
    /// `loopback`: whose 127.0.0.0/8 and ::1 are, `"netchan"` (true) or `"kernel"`, the default.
    pub loopback: Option<bool>,
    /// `mss_clamp`: whether SYNs passed on offer no longer segments than their links take.
    pub mss_clamp: Option<bool>,
    /// `moderation`: packets wake a link's thread at most once in this time (D6), 0 to 10 ms.
    pub moderation: Option<Duration>,
    /// `background`: a link leader that is away for so long is replaced by the links' threads, 0 to 100 ms; 0: they poll always.
    pub background: Option<Duration>,
    /// `spin`: how long a thread that waits looks before it sleeps, 0 to 10 ms.
    pub spin: Option<Duration>,
    /// `lease_memory_max`: what the leases that `netchan daemon` gives to one user other than root take together, bytes; half of the machine's memory if `None`.
    pub lease_memory_max: Option<usize>,
    /// `trace`: what is recorded; `None` leaves it as it is.
    pub trace: Option<Level>,
    /// `trace_events`: events that each thread's trace ring keeps, a power of two from 64 to 1 Mi. The process's first stack says it.
    pub trace_events: Option<usize>,
    /// `compile_filters`: whether the filters of captures become machine code, where that can be.
    pub compile_filters: Option<bool>,
    /// `cores`: what threads are placed on, in this order; empty leaves it to the kernel.
    pub cores: Vec<usize>,
    /// `[[link]]`, in the order of the file.
    pub links: Vec<LinkConfig>,
    /// `[tcp]`.
    pub tcp: TcpConfig,
    /// `[udp]`.
    pub udp: UdpConfig,
    /// `[icmp]`.
    pub icmp: IcmpConfig,
    /// `[run]`.
    pub run: RunConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[[module]]`, in the order of the file, which is the order in which they see a packet.
    pub modules: Vec<ModuleConfig>,
    /// `[[lease]]`: ports below 1024 that `netchan daemon` gives to others than root.
    pub leases: Vec<LeaseConfig>,
}

/// One `[[link]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Kind, name and options, ready to be opened.
    pub specification: Specification,
    /// Our addresses on it, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Default gateways, at most one a family.
    pub gateways: Vec<IpAddr>,
    /// `[[link.route]]`.
    pub routes: Vec<RouteConfig>,
}

/// `[tcp]`. What is `None` is left to the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpConfig {
    /// How the congestion window moves.
    pub congestion: Option<CongestionControl>,
    /// Segments that one acknowledgment may add in slow start without pacing (RFC 9406 §4.2 has 8); 0 (default): all, as in Linux.
    pub slow_start_limit: Option<u8>,
    /// Explicit congestion notification: `off`, `passive`, `classic`, `accurate`.
    pub ecn: Option<EcnMode>,
    /// Text leaves at the rate of the window, whatever the congestion control.
    pub pacing: Option<bool>,
    /// Whether paths are probed for what they take (RFC 4821): `off`, `blackhole`, `always`.
    pub mtu_probing: Option<MtuProbing>,
    /// What ICMP errors that may pass do to an attempt to connect (RFC 5461 §4.1): `end` (default), `note`.
    pub icmp_while_connecting: Option<IcmpWhileConnecting>,
    /// Whether a segment without a timestamp is dropped where they were agreed upon (RFC 7323 §3.2); it passes by default, as in Linux.
    pub timestamps_required: Option<bool>,
    /// Most a connection's receive buffer may grow to, bytes: 4 KiB to 1 GiB (RFC 7323 §2.3).
    pub receive_buffer_max: Option<usize>,
    /// The same for its send buffer.
    pub send_buffer_max: Option<usize>,
    /// Most memory all TCP sockets may hold together, bytes (N4): 64 KiB to 4 TiB.
    pub memory_max: Option<usize>,
    /// Most of it that one socket may hold, bytes: 64 KiB to 4 TiB; default: a quarter.
    pub socket_memory_max: Option<usize>,
    /// Most of it that all sockets of one peer (an IPv4 address, an IPv6 /64) may hold; default: half.
    pub peer_memory_max: Option<usize>,
    /// Whether both ends of a connection agree on how long they go on without an answer (RFC 5482).
    pub user_timeout_option: Option<bool>,
    /// When listeners answer SYNs with cookies (RFC 4987): `off`, `when-full` (default), `always`.
    pub syn_cookies: Option<SynCookies>,
    /// Which side of TCP Fast Open is there for sockets that ask for it (RFC 7413): `off`, `client`, `server`, `both` (default).
    pub fast_open: Option<FastOpenMode>,
    /// Whether small segments wait for company (RFC 9293 §3.7.4) unless a socket says otherwise.
    pub nagle: Option<bool>,
}

/// `[udp]`. What is `None` is left to the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpConfig {
    /// Most memory all UDP sockets may hold together, bytes (N4): 64 KiB to 4 TiB.
    pub memory_max: Option<usize>,
    /// Most of it that one socket may hold, bytes: 64 KiB to 4 TiB; default: a quarter.
    pub socket_memory_max: Option<usize>,
    /// Most of it that datagrams of one peer (an IPv4 address, an IPv6 /64) may hold; default: half.
    pub peer_memory_max: Option<usize>,
}

/// `[icmp]`. What is `None` is left to the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IcmpConfig {
    /// Whether ICMP errors are rate limited (RFC 1122 §3.2.2, RFC 4443 §2.4 f), as they are by default.
    pub rate_limit: Option<bool>,
}

/// `[run]`: what `netchan run` does beside the stack, which it does not concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunConfig {
    /// The user, by name or number, that the program runs as once its links are open.
    pub user: Option<String>,
    /// Whether the program is confined by Landlock and seccomp once its links are open.
    pub sandbox: Option<bool>,
    /// What it may write to nevertheless: files, and directories with all beneath.
    pub writable: Vec<PathBuf>,
}

/// `[log]`: what `netchan run` does with what the stack tells by itself; a program of the library installs a subscriber ([`crate::log`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// How much is told.
    pub level: Option<Verbosity>,
    /// The file that it is appended to, in place of stderr.
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that is wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| {
            let what = match e.kind() {
                io::ErrorKind::NotFound => "there is no such file".to_owned(),
                _ => format!("cannot be read: {e}"),
            };
            ConfigError {
                file: file.clone(),
                line: None,
                key: None,
                what,
            }
        })?;
        Self::parse(&text, &file)
    }

    /// Checks `text`; `file` is what errors call it.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that is wrong.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        file::parse(text).map_err(|problem| problem.located(text, file))
    }

    /// A file with every key, its default and what it does. Read as it is, it changes nothing: links, modules and what has no one
    /// default stand behind `#`.
    #[must_use]
    pub fn example() -> String {
        example::text()
    }

    /// What regime, Giant and dispatch come to.
    #[must_use]
    pub fn choice(&self) -> Choice {
        Choice {
            regime: self.regime,
            giant: self.giant.unwrap_or(false),
            dispatch: self.dispatch.unwrap_or_default(),
            ..Choice::default()
        }
    }
}

/// One key of `[tcp]` with a value as a person types it, a word without quotes included.
///
/// # Errors
/// What is wrong with the value, in a sentence.
pub(crate) fn tcp_setting(key: &str, value: &str) -> Result<TcpConfig, String> {
    let is_plain = value.parse::<bool>().is_ok() || value.parse::<u64>().is_ok();
    let value = match is_plain {
        true => value.to_owned(),
        false => toml::Value::from(value).to_string(),
    };
    let read = Config::parse(&format!("[tcp]\n{key} = {value}\n"), "");
    read.map(|config| config.tcp).map_err(|e| e.what)
}

/// The modules that `text` describes, a configuration that says nothing else.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub(crate) fn modules(text: &str) -> Result<Vec<ModuleConfig>, String> {
    let mut config = Config::parse(text, "").map_err(|e| e.what)?;
    let modules = std::mem::take(&mut config.modules);
    match config == Config::default() {
        true => Ok(modules),
        false => Err("it says more than [[module]]".to_owned()),
    }
}

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The line, from 1, where it is about one.
    pub line: Option<usize>,
    /// The key, with its tables (`tcp.congestion`), where it is about one.
    pub key: Option<String>,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for io::Error {
    fn from(e: ConfigError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, e)
    }
}
