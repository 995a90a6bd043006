//! The TOML of a configuration file: its shape for serde, and the checks that a shape cannot express.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;
use toml::{
    Spanned, Value,
    de::{DeString, DeTable, DeValue},
};

use super::{
    Config, LinkConfig, RouteConfig, keys, lease, module,
    problem::{Problem, problem},
};
use crate::link::specification::{self, Kind, Specification};

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

/// Reads and checks a whole file, in its order.
pub fn parse(text: &str) -> Result<Config, Problem> {
    let whole = DeTable::parse(text).map_err(|e| Problem {
        span: e.span(),
        what: e.message().to_owned(),
    })?;
    let mut config = Config::default();
    // What makes the regime what it is, for a problem that is found when all is read.
    let (mut giant, mut dispatch) = (None, None);
    for (key, value) in in_order(whole.into_inner()) {
        match key.get_ref().as_ref() {
            "link" => links(&mut config, &keys::typed::<Vec<Link>>(value)?)?,
            "module" => {
                for file in &keys::typed::<Vec<module::Module>>(value)? {
                    config.modules.push(module::read(file, &config.modules)?);
                }
            }
            "lease" => {
                for file in &keys::typed::<Vec<lease::Lease>>(value)? {
                    config.leases.push(lease::read(file, config.leases.len())?);
                }
            }
            table @ ("tcp" | "udp" | "icmp" | "run" | "log") => {
                read_table(&mut config, table, value)?
            }
            name => {
                match name {
                    "giant" if value.get_ref().as_bool() == Some(true) => {
                        giant = Some(value.span())
                    }
                    "dispatch" => dispatch = Some(value.span()),
                    _ => {}
                }
                keys::read(&mut config, "", &key, value)?;
            }
        }
    }
    match config.choice().layout() {
        Ok(_) => Ok(config),
        // It is about whatever was said beside the regime.
        Err(what) => Err(Problem {
            span: giant.or(dispatch),
            what,
        }),
    }
}

/// As they stand in the text: the first thing that is wrong is the one that is told.
fn in_order<'t>(table: DeTable<'t>) -> Vec<(Spanned<DeString<'t>>, Spanned<DeValue<'t>>)> {
    let mut keys: Vec<_> = table.into_iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    keys
}

fn read_table(config: &mut Config, name: &str, value: Spanned<DeValue<'_>>) -> Result<(), Problem> {
    let span = value.span();
    let DeValue::Table(table) = value.into_inner() else {
        let what = format!("`{name}` is a table: write [{name}], and its keys below");
        return Err(Problem {
            span: Some(span),
            what,
        });
    };
    for (key, value) in in_order(table) {
        keys::read(config, name, &key, value)?;
    }
    Ok(())
}

fn links(config: &mut Config, files: &[Link]) -> Result<(), Problem> {
    for file in files {
        let link = link(file)?;
        let same = |other: &LinkConfig| {
            let (a, b) = (&other.specification, &link.specification);
            // Two ends of a wire, two links of a daemon.
            let may_be_two = matches!(a.kind, Kind::Wire | Kind::Daemon);
            (a.kind, &a.name) == (b.kind, &b.name) && !a.name.is_empty() && !may_be_two
        };
        if config.links.iter().any(same) {
            return Err(problem(
                &file.kind,
                format!("`{}` is listed twice", link.specification),
            ));
        }
        config.links.push(link);
    }
    Ok(())
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
