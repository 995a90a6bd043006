//! The TOML of a configuration file: its shape for serde, and the checks that a shape cannot express.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use proto::tcp::{
    CongestionControl, EcnMode, FastOpenMode, IcmpWhileConnecting, MtuProbing, SynCookies,
};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::{
    Config, IcmpConfig, LinkConfig, RouteConfig, RunConfig, TcpConfig, UdpConfig, module,
    problem::{Problem, problem, size},
};
use crate::{
    limits,
    link::specification::{self, Kind, Specification},
    regime::{Dispatch, Regime},
    trace::Level,
    units,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    regime: Option<Spanned<String>>,
    giant: Option<Spanned<bool>>,
    dispatch: Option<Spanned<String>>,
    forwarding: Option<bool>,
    loopback: Option<Spanned<String>>,
    mss_clamp: Option<bool>,
    moderation: Option<Spanned<String>>,
    trace: Option<Spanned<String>>,
    #[serde(default)]
    cores: Vec<Spanned<usize>>,
    #[serde(default)]
    link: Vec<Link>,
    #[serde(default)]
    tcp: Tcp,
    #[serde(default)]
    udp: Udp,
    #[serde(default)]
    icmp: Icmp,
    #[serde(default)]
    run: Run,
    #[serde(default)]
    module: Vec<module::Module>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: Option<Spanned<String>>,
    kind: Spanned<String>,
    #[serde(default)]
    address: Vec<Spanned<String>>,
    gateway: Option<Spanned<Value>>,
    #[serde(default)]
    route: Vec<Spanned<Route>>,
    #[serde(default)]
    options: BTreeMap<String, Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    to: Option<Spanned<String>>,
    gateway: Option<Spanned<String>>,
    mark: Option<Spanned<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tcp {
    congestion: Option<Spanned<String>>,
    slow_start_limit: Option<u8>,
    ecn: Option<Spanned<String>>,
    pacing: Option<bool>,
    mtu_probing: Option<Spanned<String>>,
    icmp_while_connecting: Option<Spanned<String>>,
    timestamps_required: Option<bool>,
    receive_buffer_max: Option<Spanned<Value>>,
    send_buffer_max: Option<Spanned<Value>>,
    memory_max: Option<Spanned<Value>>,
    socket_memory_max: Option<Spanned<Value>>,
    peer_memory_max: Option<Spanned<Value>>,
    user_timeout_option: Option<bool>,
    syn_cookies: Option<Spanned<String>>,
    fast_open: Option<Spanned<String>>,
    nagle: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Udp {
    memory_max: Option<Spanned<Value>>,
    socket_memory_max: Option<Spanned<Value>>,
    peer_memory_max: Option<Spanned<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Icmp {
    rate_limit: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    user: Option<String>,
    sandbox: Option<bool>,
    #[serde(default)]
    writable: Vec<PathBuf>,
}

/// Reads and checks a whole file.
pub fn parse(text: &str) -> Result<Config, Problem> {
    let file: File = toml::from_str(text).map_err(|e| Problem {
        span: e.span(),
        what: e.message().to_owned(),
    })?;
    let mut config = Config {
        regime: file.regime.as_ref().map(regime).transpose()?,
        giant: file.giant.as_ref().map(|giant| *giant.get_ref()),
        dispatch: file.dispatch.as_ref().map(dispatch).transpose()?,
        forwarding: file.forwarding,
        loopback: file.loopback.as_ref().map(loopback).transpose()?,
        mss_clamp: file.mss_clamp,
        moderation: file.moderation.as_ref().map(moderation).transpose()?,
        trace: file.trace.as_ref().map(level).transpose()?,
        tcp: tcp(&file.tcp)?,
        udp: UdpConfig {
            memory_max: memory(file.udp.memory_max.as_ref())?,
            socket_memory_max: memory(file.udp.socket_memory_max.as_ref())?,
            peer_memory_max: memory(file.udp.peer_memory_max.as_ref())?,
        },
        icmp: IcmpConfig {
            rate_limit: file.icmp.rate_limit,
        },
        run: RunConfig {
            user: file.run.user,
            sandbox: file.run.sandbox,
            writable: file.run.writable,
        },
        ..Config::default()
    };
    if let Err(what) = config.choice().layout() {
        // It is about whatever was said beside the regime.
        let (giant, dispatch) = (file.giant.as_ref(), file.dispatch.as_ref());
        let giant = giant.filter(|giant| *giant.get_ref()).map(Spanned::span);
        let span = giant.or_else(|| dispatch.map(Spanned::span));
        return Err(Problem { span, what });
    }
    for core in file.cores {
        if config.cores.contains(core.get_ref()) {
            return Err(problem(
                &core,
                format!("core {} is listed twice", core.get_ref()),
            ));
        }
        config.cores.push(core.into_inner());
    }
    for file in &file.link {
        let link = link(file)?;
        let same = |other: &LinkConfig| {
            let (a, b) = (&other.specification, &link.specification);
            (a.kind, &a.name) == (b.kind, &b.name) && !a.name.is_empty() && a.kind != Kind::Wire
        };
        if config.links.iter().any(same) {
            return Err(problem(
                &file.kind,
                format!("`{}` is listed twice", link.specification),
            ));
        }
        config.links.push(link);
    }
    for file in &file.module {
        config.modules.push(module::read(file, &config.modules)?);
    }
    Ok(config)
}

fn regime(name: &Spanned<String>) -> Result<Regime, Problem> {
    let wanted = name.get_ref();
    match wanted.parse::<Regime>() {
        Ok(regime) if regime.layout(None).is_some() => Ok(regime),
        Ok(later) => {
            let what = format!(
                "the regime `{later}` is not supported yet; this release has {}",
                Regime::names()
            );
            Err(problem(name, what))
        }
        Err(_) => Err(problem(
            name,
            format!(
                "unknown regime `{wanted}`; it is one of {}",
                Regime::names()
            ),
        )),
    }
}

fn moderation(time: &Spanned<String>) -> Result<Duration, Problem> {
    let least = units::duration(time.get_ref()).map_err(|what| problem(time, what))?;
    if least > limits::MODERATION_MAX {
        let what = format!("{} is out of range: 0 to 10 ms", time.get_ref());
        return Err(problem(time, what));
    }
    Ok(least)
}

fn dispatch(name: &Spanned<String>) -> Result<Dispatch, Problem> {
    let why = |_| {
        let (wanted, names) = (name.get_ref(), Dispatch::ALL.map(Dispatch::name).join(", "));
        problem(
            name,
            format!("unknown dispatch `{wanted}`; it is one of {names}"),
        )
    };
    name.get_ref().parse().map_err(why)
}

fn loopback(whose: &Spanned<String>) -> Result<bool, Problem> {
    let find = |name: &str| match name {
        "netchan" => Some(true),
        "kernel" => Some(false),
        _ => None,
    };
    word(
        whose,
        "owner of the loopback addresses",
        find,
        &["netchan", "kernel"],
    )
}

fn level(name: &Spanned<String>) -> Result<Level, Problem> {
    name.get_ref()
        .parse()
        .map_err(|what: String| problem(name, what))
}

/// A word of a list: the value that it names.
fn word<T>(
    text: &Spanned<String>,
    what: &str,
    find: impl Fn(&str) -> Option<T>,
    names: &[&str],
) -> Result<T, Problem> {
    let wanted = text.get_ref();
    let why = || {
        let names = names.join(", ");
        problem(
            text,
            format!("unknown {what} `{wanted}`; it is one of {names}"),
        )
    };
    find(wanted).ok_or_else(why)
}

fn congestion(name: &Spanned<String>) -> Result<CongestionControl, Problem> {
    let find = |name: &str| match name {
        "newreno" => Some(CongestionControl::NewReno),
        other => CongestionControl::called(other),
    };
    let names = CongestionControl::ALL.map(CongestionControl::name);
    word(name, "congestion control", find, &names)
}

fn tcp(file: &Tcp) -> Result<TcpConfig, Problem> {
    let modes = EcnMode::ALL.map(EcnMode::name);
    let ecn = |mode| word(mode, "ECN mode", EcnMode::called, &modes);
    let modes = MtuProbing::ALL.map(MtuProbing::name);
    let probing = |mode| word(mode, "way to probe paths", MtuProbing::called, &modes);
    // A window of 65535 bytes scaled by 2¹⁴ is 1 GiB (RFC 7323 §2.3).
    let buffer = (4 << 10)..=(1 << 30);
    Ok(TcpConfig {
        congestion: file.congestion.as_ref().map(congestion).transpose()?,
        slow_start_limit: file.slow_start_limit,
        ecn: file.ecn.as_ref().map(ecn).transpose()?,
        pacing: file.pacing,
        mtu_probing: file.mtu_probing.as_ref().map(probing).transpose()?,
        icmp_while_connecting: (file.icmp_while_connecting.as_ref())
            .map(icmp_while_connecting)
            .transpose()?,
        timestamps_required: file.timestamps_required,
        receive_buffer_max: size(file.receive_buffer_max.as_ref(), &buffer)?,
        send_buffer_max: size(file.send_buffer_max.as_ref(), &buffer)?,
        memory_max: memory(file.memory_max.as_ref())?,
        socket_memory_max: memory(file.socket_memory_max.as_ref())?,
        peer_memory_max: memory(file.peer_memory_max.as_ref())?,
        user_timeout_option: file.user_timeout_option,
        syn_cookies: file.syn_cookies.as_ref().map(syn_cookies).transpose()?,
        fast_open: file.fast_open.as_ref().map(fast_open).transpose()?,
        nagle: file.nagle,
    })
}

fn icmp_while_connecting(name: &Spanned<String>) -> Result<IcmpWhileConnecting, Problem> {
    let names = IcmpWhileConnecting::ALL.map(IcmpWhileConnecting::name);
    word(
        name,
        "way to take ICMP errors",
        IcmpWhileConnecting::called,
        &names,
    )
}

fn fast_open(name: &Spanned<String>) -> Result<FastOpenMode, Problem> {
    let what = "side of Fast Open";
    word(name, what, FastOpenMode::called, &FastOpenMode::NAMES)
}

fn syn_cookies(name: &Spanned<String>) -> Result<SynCookies, Problem> {
    let wanted = name.get_ref();
    let found = SynCookies::ALL.into_iter().find(|c| c.name() == wanted);
    let names = || SynCookies::ALL.map(SynCookies::name).join(", ");
    found.ok_or_else(|| {
        problem(
            name,
            format!("unknown `{wanted}`; it is one of {}", names()),
        )
    })
}

/// A limit of memory.
fn memory(value: Option<&Spanned<Value>>) -> Result<Option<usize>, Problem> {
    size(value, &limits::MEMORY)
}

fn link(file: &Link) -> Result<LinkConfig, Problem> {
    let kind = Kind::parse(file.kind.get_ref()).map_err(|what| problem(&file.kind, what))?;
    let mut options = Vec::new();
    for (key, value) in &file.options {
        for text in texts(value)? {
            // One by one first, so that the error names the line of the one that is wrong.
            let one = vec![(key.clone(), text.clone())];
            let name = if matches!(kind, Kind::Packet | Kind::Pcap) {
                "x"
            } else {
                ""
            };
            Specification::new(kind, name, one).map_err(|what| problem(value, what))?;
            options.push((key.clone(), text));
        }
    }
    if let Some(name) = file.name.as_ref().filter(|name| name.get_ref().is_empty()) {
        return Err(problem(
            name,
            "the name is empty; write one, or leave `name` out",
        ));
    }
    let named = file.name.as_ref().unwrap_or(&file.kind);
    let name = file
        .name
        .as_ref()
        .map_or("", |name| name.get_ref().as_str());
    let specification =
        Specification::new(kind, name, options).map_err(|what| problem(named, what))?;
    let mut addresses = Vec::new();
    for text in &file.address {
        let address = match text.get_ref().as_str() {
            word @ ("dhcp" | "slaac") => Err(format!(
                "`{word}` is not supported yet; write an address like 10.77.0.2/24"
            )),
            other => specification::address(other),
        }
        .map_err(|what| problem(text, what))?;
        if addresses.contains(&address) {
            return Err(problem(
                text,
                format!("`{}` is listed twice", text.get_ref()),
            ));
        }
        addresses.push(address);
    }
    let gateways = file
        .gateway
        .as_ref()
        .map_or(Ok(Vec::new()), |value| gateways(value, &addresses))?;
    let mut routes = Vec::new();
    for text in &file.route {
        routes.push(route(text, &addresses)?);
    }
    Ok(LinkConfig {
        specification,
        addresses,
        gateways,
        routes,
    })
}

fn route(file: &Spanned<Route>, addresses: &[(IpAddr, u8)]) -> Result<RouteConfig, Problem> {
    let Route { to, gateway, mark } = file.get_ref();
    if let Some(mark) = mark.as_ref().filter(|mark| *mark.get_ref() == 0) {
        let what = "a mark of 0 is none; leave it out, or write 1 to 4294967295";
        return Err(problem(mark, what));
    }
    let text = |of: &Option<Spanned<String>>| of.as_ref().map(|text| text.get_ref().clone());
    let route = RouteConfig::read(
        &text(to).unwrap_or_default(),
        text(gateway).as_deref(),
        mark.as_ref().map_or(0, |mark| *mark.get_ref()),
    )
    .map_err(|what| Problem {
        span: Some(
            to.as_ref()
                .or(gateway.as_ref())
                .map_or(file.span(), Spanned::span),
        ),
        what,
    })?;
    match (route.gateway, gateway) {
        (Some(ip), Some(at)) if !is_reachable(ip, addresses) => Err(problem(at, unreachable(ip))),
        _ => Ok(route),
    }
}

/// A value as the text (or texts) that the option has on the command line.
fn texts(value: &Spanned<Value>) -> Result<Vec<String>, Problem> {
    let one = |single: &Value| match single {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(n) => Ok(n.to_string()),
        Value::Float(x) => Ok(x.to_string()),
        Value::Boolean(on) => Ok(if *on { "on" } else { "off" }.to_owned()),
        other => Err(problem(
            value,
            format!("{other} is neither text, number nor true or false"),
        )),
    };
    match value.get_ref() {
        Value::Array(many) => many.iter().map(one).collect(),
        single => one(single).map(|text| vec![text]),
    }
}

/// Gateways, each of a family that has an address here, and within reach of one where it is IPv4.
fn gateways(value: &Spanned<Value>, addresses: &[(IpAddr, u8)]) -> Result<Vec<IpAddr>, Problem> {
    let mut found: Vec<IpAddr> = Vec::new();
    for text in texts(value)? {
        let gateway: IpAddr = text
            .parse()
            .map_err(|_| problem(value, format!("`{text}` is not an IP address")))?;
        if found
            .iter()
            .any(|other| other.is_ipv4() == gateway.is_ipv4())
        {
            return Err(problem(
                value,
                "a second gateway of one family; a link has at most one for each",
            ));
        }
        if !is_reachable(gateway, addresses) {
            return Err(problem(value, unreachable(gateway)));
        }
        found.push(gateway);
    }
    Ok(found)
}

/// Whether a link with these addresses leads to `gateway`.
fn is_reachable(gateway: IpAddr, addresses: &[(IpAddr, u8)]) -> bool {
    let reaches = |&(address, prefix): &(IpAddr, u8)| match (address, gateway) {
        (IpAddr::V4(a), IpAddr::V4(g)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            a.to_bits() & mask == g.to_bits() & mask
        }
        // An IPv6 router is on the link whatever its address says (RFC 4861 §5.1): most are link-local.
        (IpAddr::V6(_), IpAddr::V6(_)) => true,
        _ => false,
    };
    addresses.iter().any(reaches)
}

fn unreachable(gateway: IpAddr) -> String {
    format!("`{gateway}` is not within the network of any address of this link")
}
