//! Links as people write them: `KIND[:NAME][,option=value]...`, checked and opened.

pub(super) mod names;
mod nearest;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    fs::File,
    io,
    net::IpAddr,
    num::NonZeroU64,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    str::FromStr,
};

use netchan_base::{clock::Clock, limits::QUEUES_MAX, units};
use proto::wire::ethernet::MacAddr;

use super::{Link, lease, loopback, packet, pcap, tap, wire};

/// Longest path of a socket, bytes (`sun_path` less the zero behind it).
const PATH_MAX: usize = 107;
/// Longest name of a daemon's link, bytes.
const LINK_MAX: usize = 255;

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// In memory, between two stacks of one process.
    Wire,
    /// To this host's kernel.
    Tap,
    /// An interface of this host, shared with its kernel (AF_PACKET).
    Packet,
    /// What a file recorded.
    Pcap,
    /// To ourselves.
    Loop,
    /// Lent by another process.
    Daemon,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Wire,
        Self::Tap,
        Self::Packet,
        Self::Pcap,
        Self::Loop,
        Self::Daemon,
    ];

    /// Options every kind has.
    pub const COMMON: [&str; 3] = ["mtu", "mac", "capture"];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Tap => "tap",
            Self::Packet => "packet",
            Self::Pcap => "pcap",
            Self::Loop => "loop",
            Self::Daemon => "daemon",
        }
    }

    /// Options of this kind beside the common ones.
    #[must_use]
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Wire => &[
                "delay", "jitter", "reorder", "extent", "loss", "dup", "corrupt", "rate", "queue",
                "seed", "ring", "checksum", "offload",
            ],
            Self::Tap => &["offload", "peer", "queues"],
            Self::Packet => &["offload", "queues"],
            Self::Pcap => &["pace"],
            Self::Loop => &["checksum"],
            Self::Daemon => &["link", "memory"],
        }
    }

    /// What is wrong with a colon and no name behind it.
    fn nothing_behind_colon(self) -> String {
        match self {
            Self::Loop => "there is nothing behind the `:`; `loop` has no name, write `loop`".into(),
            Self::Tap => "there is no name behind the `:`; write `tap:nc0`, or `tap` for a name that the kernel chooses".into(),
            Self::Wire => "there is no name behind the `:`; write `wire:NAME`, or `wire`".into(),
            Self::Packet => "there is no name behind the `:`; which interface? Write `packet:eth0`".into(),
            Self::Pcap => "there is no name behind the `:`; which file? Write `pcap:FILE`".into(),
            Self::Daemon => "there is no path behind the `:`; write `daemon:PATH`, or `daemon` for the usual one".into(),
        }
    }

    /// What a user means by `name`.
    ///
    /// # Errors
    /// A sentence that names the kinds there are, and the one that is likely meant.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        match name {
            "xdp" | "shm" => Err(format!(
                "`{name}` links are not supported yet; this release has {}",
                known()
            )),
            _ => Self::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .ok_or_else(|| {
                    let hint = nearest::hint(name, Self::ALL.map(Self::name));
                    format!("unknown kind `{name}`{hint}; it is one of {}", known())
                }),
        }
    }
}

/// Why a specification names no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecificationError {
    /// As the user wrote it.
    pub specification: String,
    /// What was wrong with it and what is allowed.
    pub what: String,
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link `{}`: {}", self.specification, self.what)
    }
}

impl std::error::Error for SpecificationError {}

impl From<SpecificationError> for io::Error {
    fn from(e: SpecificationError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, e)
    }
}

/// A link that was asked for, every option and value of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    /// What it is made of.
    pub kind: Kind,
    /// Which of its kind: an interface, a file, a wire's name; empty where there is none.
    pub name: String,
    /// Options in the order they were written.
    pub options: Vec<(String, String)>,
}

impl fmt::Display for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if !self.name.is_empty() {
            write!(f, ":{}", self.name)?;
        }
        self.options
            .iter()
            .try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

impl FromStr for Specification {
    type Err = SpecificationError;
    fn from_str(text: &str) -> Result<Self, SpecificationError> {
        parse(text)
    }
}

/// Reads `KIND[:NAME][,option=value]...` and checks it.
///
/// # Errors
/// An unknown kind, option or value, by name and with what is allowed instead.
pub fn parse(text: &str) -> Result<Specification, SpecificationError> {
    let error = |what| SpecificationError {
        specification: text.to_owned(),
        what,
    };
    let mut parts = text.split(',');
    let head = parts.next().unwrap_or_default();
    if let Some(meant) = names::misplaced_option(head) {
        let meant = text.replacen(head, &meant, 1);
        return Err(error(format!(
            "options stand behind commas; write `{meant}`"
        )));
    }
    let (kind, name) = head.split_once(':').unwrap_or((head, ""));
    let kind = Kind::parse(kind.trim()).map_err(error)?;
    if head.contains(':') && name.trim().is_empty() {
        return Err(error(kind.nothing_behind_colon()));
    }
    let mut options = Vec::new();
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            return Err(error(format!("`{part}` is not an option; write key=value")));
        };
        options.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    Specification::new(kind, name.trim(), options).map_err(error)
}

/// Opens what `specification` asks for. `clock` is the stack's: captures are stamped by it.
///
/// # Errors
/// What the kernel or the file system said, with what to do about it; `InvalidInput` for a setting that does not fit.
pub fn open(specification: &Specification, clock: &Clock) -> io::Result<Box<dyn Link>> {
    adopt(specification, clock, Vec::new())
}

/// Opens a link over descriptors that another process opened as `specification` says ([`Link::handed_on`]); without them by its name.
///
/// # Errors
/// As for [`open`], and when a descriptor is not what it should be.
pub fn adopt(
    specification: &Specification,
    clock: &Clock,
    mut handed: Vec<OwnedFd>,
) -> io::Result<Box<dyn Link>> {
    let capture = specification.get("capture");
    let file = match capture {
        Some(_) if !handed.is_empty() => Some(File::from(handed.remove(0))),
        _ => None,
    };
    let link = device(specification, handed)?;
    let Some(path) = capture.map(Path::new) else {
        return Ok(link);
    };
    Ok(Box::new(match file {
        Some(file) => pcap::Capture::adopt(link, file, path, clock)?,
        None => pcap::Capture::new(link, path, clock)?,
    }))
}

/// The link itself, which nothing records.
fn device(specification: &Specification, handed: Vec<OwnedFd>) -> io::Result<Box<dyn Link>> {
    let bad = |what| {
        io::Error::from(SpecificationError {
            specification: specification.to_string(),
            what,
        })
    };
    let name = &specification.name;
    let link: Box<dyn Link> = match specification.kind {
        Kind::Wire => {
            let options = specification.wire_options().map_err(bad)?;
            Box::new(
                wire::registry::open(name, options.as_ref()).map_err(|what| {
                    io::Error::new(
                        io::ErrorKind::AddrInUse,
                        format!("link `{specification}`: {what}"),
                    )
                })?,
            )
        }
        Kind::Tap => {
            let options = specification.tap_options().map_err(bad)?;
            Box::new(match handed.is_empty() {
                false => tap::Tap::adopt(handed, name, &options)?,
                true => tap::Tap::open(name, &options)?,
            })
        }
        Kind::Loop => Box::new(loopback::Loopback::new(
            &specification.loop_options().map_err(bad)?,
        )),
        Kind::Packet => {
            let options = specification.packet_options().map_err(bad)?;
            Box::new(match handed.is_empty() {
                false => packet::PacketSocket::adopt(handed, name, &options)?,
                true => packet::PacketSocket::open(name, &options)?,
            })
        }
        Kind::Pcap => Box::new(pcap::Replay::open(
            name,
            &specification.pcap_options().map_err(bad)?,
        )?),
        Kind::Daemon => {
            let options = specification.daemon_options().map_err(bad)?;
            Box::new(match handed.is_empty() {
                false => lease::LeasedLink::adopt(handed, &options)?,
                true => lease::LeasedLink::open(&options)?,
            })
        }
    };
    Ok(link)
}

impl Specification {
    /// A specification from its parts, checked.
    ///
    /// # Errors
    /// A sentence: an unknown option, a bad or missing value.
    pub fn new(kind: Kind, name: &str, options: Vec<(String, String)>) -> Result<Self, String> {
        let specification = Self {
            kind,
            name: name.to_owned(),
            options,
        };
        specification.check()?;
        Ok(specification)
    }

    /// The value of `key`, the last one where it was given several times.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all(key).last()
    }

    fn all<'a, 'k>(&'a self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.options
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, value)| value.as_str())
    }

    fn check(&self) -> Result<(), String> {
        let kind = self.kind.name();
        for (key, _) in &self.options {
            let own = self.kind.options();
            if !Kind::COMMON.contains(&key.as_str()) && !own.contains(&key.as_str()) {
                let allowed = [&Kind::COMMON, own].concat();
                let hint = nearest::hint(key, allowed.iter().copied());
                let allowed = allowed.join(", ");
                return Err(format!(
                    "unknown option `{key}`{hint}; `{kind}` takes {allowed}"
                ));
            }
        }
        match (self.kind, self.name.as_str()) {
            (Kind::Packet, "") => return Err("which interface? Write `packet:eth0`".into()),
            (Kind::Pcap, "") => return Err("which file? Write `pcap:FILE`".into()),
            (Kind::Loop, name) if !name.is_empty() => {
                return Err(format!("`loop` has no name, but here it is `{name}`"));
            }
            (Kind::Daemon, path) if path.len() > PATH_MAX || path.contains('\0') => {
                return Err(format!(
                    "no socket can have the path `{path}`: it has at most {PATH_MAX} bytes, and no zero"
                ));
            }
            (Kind::Tap | Kind::Packet, name) => names::interface(name)?,
            _ => {}
        }
        if self.get("capture") == Some("") {
            return Err("option `capture`: which file?".into());
        }
        match self.kind {
            Kind::Wire => self.wire_options().map(drop),
            Kind::Tap => self.tap_options().map(drop),
            Kind::Loop => self.loop_options().map(drop),
            Kind::Packet => self.packet_options().map(drop),
            Kind::Pcap => self.pcap_options().map(drop),
            Kind::Daemon => self.daemon_options().map(drop),
        }
    }

    /// The value of `key`, read by `read`, whose sentence gets the key's name.
    fn read<T>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.get(key)
            .map(|value| read(value).map_err(|what| format!("option `{key}`: {what}")))
            .transpose()
    }

    /// `mtu=`: 68 (RFC 791) to `max` bytes.
    fn mtu(&self, max: u64) -> Result<Option<usize>, String> {
        self.read("mtu", |value| {
            let mtu = units::size(value)?;
            let fits = usize::try_from(mtu)
                .ok()
                .filter(|_| (68..=max).contains(&mtu));
            fits.ok_or_else(|| format!("`{value}` is out of range: 68 to {max} bytes"))
        })
    }

    fn mac(&self) -> Result<Option<MacAddr>, String> {
        self.read("mac", mac)
    }

    /// `queues=`: 1 to 16.
    fn queues(&self) -> Result<Option<usize>, String> {
        let queues = self.read("queues", |value| {
            units::number(value, 1..=QUEUES_MAX as u64)
        })?;
        Ok(queues.and_then(|queues| usize::try_from(queues).ok()))
    }

    fn trusted(&self) -> Result<bool, String> {
        let checksum = self.read("checksum", |value| match value {
            "trusted" => Ok(true),
            "checked" => Ok(false),
            _ => Err(format!("`{value}` is neither `checked` nor `trusted`")),
        })?;
        Ok(checksum.unwrap_or(false))
    }

    /// A wire's options; `None` where there are none, so that a second opener can take the first one's.
    pub(crate) fn wire_options(&self) -> Result<Option<wire::Options>, String> {
        if self
            .options
            .iter()
            .all(|(key, _)| matches!(key.as_str(), "capture"))
        {
            return Ok(None);
        }
        let default = wire::Options::default();
        let mut options = wire::Options {
            mtu: self.mtu(65_535)?.unwrap_or(default.mtu),
            mac: self.mac()?,
            delay: self
                .read("delay", units::duration)?
                .unwrap_or(default.delay),
            jitter: self
                .read("jitter", units::duration)?
                .unwrap_or(default.jitter),
            reorder: self
                .read("reorder", units::probability)?
                .unwrap_or(default.reorder),
            extent: self
                .read("extent", units::duration)?
                .unwrap_or(default.extent),
            loss: self
                .read("loss", units::probability)?
                .unwrap_or(default.loss),
            duplicate: self
                .read("dup", units::probability)?
                .unwrap_or(default.duplicate),
            corrupt: self
                .read("corrupt", units::probability)?
                .unwrap_or(default.corrupt),
            rate: self.read("rate", units::rate)?.and_then(NonZeroU64::new),
            seed: self
                .read("seed", |v| units::number(v, 0..=u64::MAX))?
                .unwrap_or(default.seed),
            trusted: self.trusted()?,
            offload: self.read("offload", units::switch)? == Some(true),
            ..default
        };
        if let Some(ring) = self.read("ring", |v| units::number(v, 1..=1 << 20))? {
            options.ring = usize::try_from(ring).unwrap_or(options.ring);
        }
        for value in self.all("queue") {
            queue(value, &mut options).map_err(|what| format!("option `queue`: {what}"))?;
        }
        Ok(Some(options))
    }

    pub(crate) fn tap_options(&self) -> Result<tap::Options, String> {
        let mut peers = Vec::new();
        for peer in self.all("peer").flat_map(|value| value.split(';')) {
            peers.push(address(peer).map_err(|what| format!("option `peer`: {what}"))?);
        }
        Ok(tap::Options {
            // tun.c: 65535 less the Ethernet header.
            mtu: self.mtu(65_521)?,
            mac: self.mac()?,
            plain: self.read("offload", units::switch)? == Some(false),
            peers,
            queues: self.queues()?,
        })
    }

    pub(crate) fn packet_options(&self) -> Result<packet::Options, String> {
        let mac = self.read("mac", |value| match value {
            "own" => Ok(packet::Address::Interface),
            _ => mac(value).map(packet::Address::Fixed),
        })?;
        Ok(packet::Options {
            mtu: self.mtu(65_535)?,
            address: mac.unwrap_or_default(),
            plain: self.read("offload", units::switch)? == Some(false),
            queues: self.queues()?,
        })
    }

    pub(crate) fn pcap_options(&self) -> Result<pcap::Options, String> {
        let pace = self.read("pace", |value| match value {
            "recorded" => Ok(pcap::Pace::Recorded),
            "fast" => Ok(pcap::Pace::Fast),
            _ => Err(format!("`{value}` is neither `recorded` nor `fast`")),
        })?;
        Ok(pcap::Options {
            mtu: self.mtu(65_535)?,
            mac: self.mac()?,
            pace: pace.unwrap_or_default(),
        })
    }

    pub(crate) fn daemon_options(&self) -> Result<lease::Options, String> {
        if self.get("mac").is_some() {
            return Err(
                "option `mac`: the address on it is the daemon's, and cannot be another".into(),
            );
        }
        let link = self.read("link", |name| match name {
            "" => Err("which of the daemon's links? Write `link=nc0`".into()),
            _ if name.len() > LINK_MAX => {
                Err(format!("no link has a name of more than {LINK_MAX} bytes"))
            }
            _ => Ok(name.to_owned()),
        })?;
        Ok(lease::Options {
            secret: String::new(),
            memory: self.read("memory", units::size)?,
            path: (!self.name.is_empty()).then(|| PathBuf::from(&self.name)),
            link: link.unwrap_or_default(),
            mtu: self.mtu(65_535)?,
        })
    }

    pub(crate) fn loop_options(&self) -> Result<loopback::Options, String> {
        let default = loopback::Options::default();
        Ok(loopback::Options {
            mtu: self.mtu(65_535)?.unwrap_or(default.mtu),
            mac: self.mac()?,
            trusted: self.trusted()?,
        })
    }
}

/// A queue limit: frames as a plain number, bytes with a unit.
fn queue(value: &str, options: &mut wire::Options) -> Result<(), String> {
    if value.bytes().all(|b| b.is_ascii_digit()) {
        let frames = units::number(value, 1..=1 << 16)?;
        options.queue_frames = usize::try_from(frames).ok();
        return Ok(());
    }
    let bytes = units::size(value).map_err(|_| {
        format!(
            "`{value}` is not a limit; write a number of frames, or bytes with a unit (`64 KiB`)"
        )
    })?;
    if !(1500..=1 << 30).contains(&bytes) {
        return Err(format!("`{value}` is out of range: 1500 B to 1 GiB"));
    }
    options.queue_bytes = usize::try_from(bytes).ok();
    Ok(())
}

/// One station's link-layer address.
fn mac(value: &str) -> Result<MacAddr, String> {
    let bad = || {
        format!(
            "`{value}` is not the address of one station; write six pairs of hexadecimal digits (`02:00:00:00:00:01`)"
        )
    };
    value
        .parse::<MacAddr>()
        .ok()
        .filter(|mac| mac.is_unicast())
        .ok_or_else(bad)
}

/// An address with its prefix length, `10.77.0.1/24`.
///
/// # Errors
/// A sentence: what was expected, or why it is not the address of one host.
pub fn address(value: &str) -> Result<(IpAddr, u8), String> {
    let bad = || {
        format!(
            "`{value}` is not an address with its prefix length; write `10.77.0.1/24` or `fd77::1/64`"
        )
    };
    let (ip, prefix) = value.trim().split_once('/').ok_or_else(bad)?;
    let ip: IpAddr = ip.parse().map_err(|_| bad())?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let prefix: u8 = prefix
        .parse()
        .ok()
        .filter(|&p| p <= longest)
        .ok_or_else(bad)?;
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
        return Err(format!("`{value}` is not the address of one host"));
    }
    Ok((ip, prefix))
}
