//! What changes while packets flow: addresses, routes and settings, by the library ([`Net`]) or from outside (`netchan address`, `route`, `set`,
//! `module`, which come through the control socket). Each side of the stack goes by it from its next turn on.

use std::{io, net::IpAddr, sync::Arc};

use proto::ip::address::Address;
use serde_json::{Map, Value, json};

use crate::{
    config::{self, RouteConfig},
    control::{Change, capture, inject},
    counters::Counter,
    driver::network::MTU_MIN_V6,
    errno::invalid,
    net::{Net, from_config::set_tcp, modules},
    show::settings,
    stack::Stack,
    tap, units,
};

impl Net {
    /// Gives a link (`nc0`, `tap:nc0`, `#0` by its number; empty where there is only one) an address with its prefix length, `10.0.0.2/24`, and the route to its network. The
    /// link announces it.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: no such link; not an address; a link has it already, or this one has 16.
    pub fn add_address(&self, link: &str, address: &str) -> io::Result<()> {
        add_address(self.stack(), link, address)
            .map(drop)
            .map_err(invalid)
    }

    /// Takes an address away from a link, with or without its prefix length, and the routes that need it. Connections from it stay, as in Linux: what
    /// they send is dropped.
    ///
    /// # Errors
    /// `InvalidInput`: the link does not have it.
    pub fn remove_address(&self, link: &str, address: &str) -> io::Result<()> {
        remove_address(self.stack(), link, address)
            .map(drop)
            .map_err(invalid)
    }

    /// Adds a route, as [`Builder::route`](crate::Builder::route); it replaces the link's route to the same network for the same mark. Connections
    /// that go where their route leads follow it.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: no such link; not a route; the gateway is no neighbour; there are 64 of the family.
    pub fn add_route(
        &self,
        link: &str,
        to: &str,
        gateway: Option<&str>,
        mark: u32,
    ) -> io::Result<()> {
        add_route(self.stack(), link, to, gateway, mark)
            .map(drop)
            .map_err(invalid)
    }

    /// Removes the route to a network for a mark (0: the one for all) by a link, or with an empty `link` by whatever link.
    ///
    /// # Errors
    /// `InvalidInput`: there is none.
    pub fn remove_route(&self, link: &str, to: &str, mark: u32) -> io::Result<()> {
        remove_route(self.stack(), link, to, mark)
            .map(drop)
            .map_err(invalid)
    }

    /// Changes a setting by its name in `netchan show settings` (`tcp.congestion`), to what a configuration file would say. `link.nc0.mtu` is the
    /// MTU of a link, as `netchan show links` has it, of 576 bytes (1280 with IPv6 addresses) to what the link was started with. Running TCP
    /// connections send segments that fit; the kernel's device keeps the MTU that it has.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: no such setting or link; one of the start, with where it is said; a value that it does not take.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        set(self.stack(), name, value).map(drop).map_err(invalid)
    }
}

/// Attaches a tap for a client of the control socket.
pub(super) fn capture(
    stack: &Arc<Stack>,
    request: &capture::Request,
) -> Result<capture::Captured, String> {
    let net = stack.control.host.network();
    let wanted = request.link.as_deref();
    let wanted = wanted.map(|name| link(stack, name)).transpose()?;
    let links = net.interfaces.iter();
    let links = links.map(
        |link| json!({ "name": link.name, "mac": link.mac.to_string(), "mtu_bytes": link.mtu }),
    );
    let options = tap::Options {
        subject: request.subject()?,
        link: wanted.and_then(|(number, _)| u8::try_from(number).ok()),
        way: request.way,
        snap: request.snap.unwrap_or(usize::from(u16::MAX)),
        filter: request.filter()?,
        verdicts: request.notes,
    };
    let taps = &stack.control.host.taps;
    let tap = taps.attach(options, &stack.places(), &stack.clock);
    let about = if request.notes {
        about(stack)
    } else {
        Value::Null
    };
    let stack = Arc::downgrade(stack);
    Ok(capture::Captured {
        tap: tap.map_err(|e| e.to_string())?,
        links: links.collect(),
        about,
        notes: request.notes,
        is_over: Box::new(move || stack.upgrade().is_none_or(|stack| stack.is_stopping())),
    })
}

/// Makes what writes frames for a client of the control socket.
pub(super) fn inject(
    stack: &Arc<Stack>,
    request: &inject::Request,
) -> Result<inject::Injecting, String> {
    let rate = request.rate()?;
    let (number, name) = link(stack, &request.link)?;
    let writer = writer(stack, number).map_err(|e| e.to_string())?;
    let stack = Arc::downgrade(stack);
    Ok(inject::Injecting {
        writer,
        link: name,
        way: request.way,
        rate,
        is_over: Box::new(move || stack.upgrade().is_none_or(|stack| stack.is_stopping())),
    })
}

/// What writes frames for a link.
pub(super) fn writer(stack: &Arc<Stack>, link: usize) -> io::Result<tap::Writer> {
    let mtu = (stack.control.host.network().interfaces.get(link)).map_or(0, |facts| facts.mtu);
    let link = u8::try_from(link).unwrap_or(u8::MAX);
    let links = stack.driver.links_of_queues();
    let first = links.iter().position(|&of| of == link);
    let woken = Arc::downgrade(stack);
    let wake = move || {
        if let Some(stack) = woken.upgrade()
            && let Some(first) = first
        {
            stack.call_for_written(first);
        }
    };
    (stack.control.host.taps).writer((link, mtu), &stack.places(), Box::new(wake))
}

/// What the notes of a capture mean.
fn about(stack: &Stack) -> Value {
    let reasons: Vec<&str> = (Counter::ALL.iter())
        .map(|counter| counter.name().trim_start_matches("drop_"))
        .collect();
    let modules = stack.control.modules.entries();
    let modules: Map<String, Value> = (modules.iter())
        .map(|module| (module.id.to_string(), json!(module.name)))
        .collect();
    json!({ "regime": stack.control.regime.to_string(), "reasons": reasons, "modules": modules })
}

/// Does what is asked from outside; what was done, in a sentence.
///
/// # Errors
/// Why not, in a sentence; nothing is changed then.
pub(crate) fn change(stack: &Stack, change: &Change) -> Result<String, String> {
    match change {
        Change::AddAddress { link, address } => add_address(stack, link, address),
        Change::RemoveAddress { link, address } => remove_address(stack, link, address),
        Change::AddRoute {
            link,
            to,
            gateway,
            mark,
        } => add_route(stack, link, to, gateway.as_deref(), *mark),
        Change::RemoveRoute { link, to, mark } => remove_route(stack, link, to, *mark),
        Change::Set { name, value } => set(stack, name, value),
        Change::LoadModule { toml } => modules::load_toml(stack, toml),
        Change::ReplaceModule { toml } => modules::replace_toml(stack, toml),
        Change::UnloadModule { name } => {
            modules::unload(stack, name).map_err(|e| e.to_string())?;
            Ok(format!("module {name} is unloaded"))
        }
    }
}

/// The number and the name of the link that `name` names, `#N` by its number; an empty one: the only link that there is, loopback's apart.
fn link(stack: &Stack, name: &str) -> Result<(usize, String), String> {
    let net = stack.control.host.network();
    let loopback = net.lo().map(usize::from);
    let by_number: Option<usize> = name.strip_prefix('#').and_then(|n| n.parse().ok());
    let all = net.interfaces.iter().enumerate();
    let mut meant = all.filter(|(number, facts)| match (by_number, name) {
        (Some(wanted), _) => *number == wanted,
        (None, "") => Some(*number) != loopback,
        (None, name) => facts.name == name || facts.device() == name,
    });
    let (first, is_one) = (meant.next(), meant.next().is_none());
    if let (Some((number, facts)), true) = (first, is_one) {
        return Ok((number, facts.name.clone()));
    }
    let names = net.interfaces.iter().enumerate();
    let names: Vec<String> = names.map(|(n, i)| format!("{} (#{n})", i.name)).collect();
    let names = names.join(", ");
    Err(match (name, first) {
        ("", _) => format!("which link? there are {names}"),
        (name, Some(_)) => format!("which `{name}`? there are {names}"),
        (name, None) => format!("there is no link `{name}`; there are {names}"),
    })
}

/// The links look at what is new at once: an address is announced, one that is gone is not answered for.
fn wake_links(stack: &Stack) {
    stack.driver.call_all_links();
}

fn add_address(stack: &Stack, name: &str, text: &str) -> Result<String, String> {
    let address: Address = text
        .parse()
        .map_err(|e| format!("`{text}` is no address: {e}"))?;
    if address.ip().is_loopback() {
        return Err(format!(
            "{address} is loopback's, which is of the start: --loopback"
        ));
    }
    let (number, name) = link(stack, name)?;
    stack.control.host.change_network(|net| {
        if address.ip().is_ipv6() && net.interfaces[number].mtu < MTU_MIN_V6 {
            let mtu = net.interfaces[number].mtu;
            return Err(format!(
                "IPv6 needs an MTU of {MTU_MIN_V6} bytes at least (RFC 8200 §5), and {name}'s is {mtu}"
            ));
        }
        net.add_address(number, address)
    })?;
    wake_links(stack);
    Ok(format!("{name} has {address}"))
}

fn remove_address(stack: &Stack, name: &str, text: &str) -> Result<String, String> {
    let (ip, prefix_len) = match text.split_once('/') {
        Some((ip, len)) => (ip, Some(len)),
        None => (text, None),
    };
    let ip: IpAddr = (ip.parse()).map_err(|_| format!("`{text}` is no IPv4 or IPv6 address"))?;
    let (number, name) = link(stack, name)?;
    stack.control.host.change_network(|net| {
        let has = {
            let mut all = net.interfaces[number].addresses.iter();
            all.find(|a| a.ip() == ip)
                .map(|a| a.prefix_len().to_string())
        };
        match (has, prefix_len) {
            (Some(has), Some(said)) if has != said => Err(format!("{name} has {ip}/{has}")),
            _ => net.remove_address(number, ip),
        }
    })?;
    wake_links(stack);
    Ok(format!("{name} no longer has {ip}"))
}

fn add_route(
    stack: &Stack,
    name: &str,
    to: &str,
    gateway: Option<&str>,
    mark: u32,
) -> Result<String, String> {
    let route = RouteConfig::read(to, gateway, mark)?;
    let (number, name) = link(stack, name)?;
    let key = (route.network, route.prefix_len, route.mark);
    (stack.control.host).change_network(|net| net.add_route(number, key, route.gateway))?;
    Ok(format!("{}/{} is reached by {name}", key.0, key.1))
}

fn remove_route(stack: &Stack, name: &str, to: &str, mark: u32) -> Result<String, String> {
    let route = RouteConfig::read(to, None, mark)?;
    let number = match name {
        "" => None,
        name => Some(link(stack, name)?.0),
    };
    let key = (route.network, route.prefix_len, route.mark);
    (stack.control.host).change_network(|net| net.remove_route(number, key))?;
    Ok(format!("the route to {}/{} is gone", key.0, key.1))
}

/// The link in `link.NAME.mtu`, whose name may have dots itself.
fn mtu_of(setting: &str) -> Option<&str> {
    setting.strip_prefix("link.")?.strip_suffix(".mtu")
}

fn set_mtu(stack: &Stack, name: &str, value: &str) -> Result<String, String> {
    let mtu = units::size(value).map_err(|e| format!("`{value}` is no MTU: {e}"))?;
    let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
    let (number, name) = link(stack, name)?;
    (stack.control.host).change_network(|net| net.set_mtu(number, mtu))?;
    wake_links(stack);
    Ok(format!("the MTU of {name} is {mtu}"))
}

fn set(stack: &Stack, name: &str, value: &str) -> Result<String, String> {
    if let Some(link) = mtu_of(name) {
        return set_mtu(stack, link, value);
    }
    settings::may_change(name)?;
    match name {
        "trace" => crate::trace::set_level(value.parse()?),
        "icmp.rate_limit" => {
            let limited =
                (value.parse()).map_err(|_| format!("`{value}` is neither true nor false"))?;
            stack.control.host.limit_icmp(limited);
        }
        _ => {
            let key = name.strip_prefix("tcp.").unwrap_or(name);
            let tcp = config::tcp_setting(key, value)?;
            let changed = stack
                .control
                .host
                .change_tcp(|config| set_tcp(config, &tcp));
            changed.map_err(|e| e.to_string())?;
        }
    }
    Ok(format!("{name} is {value}"))
}

#[cfg(test)]
mod tests;
