//! A link as it was asked for, and what follows for the host: its addresses and its routes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proto::{
    ip::{
        address::{Address, Addresses},
        route::{self, NextHop, Route, Via},
    },
    wire::ethernet::MacAddr,
};

use crate::{
    config::RouteConfig,
    driver::host::InterfaceFacts,
    errno::invalid,
    link::{Link, lo::Lo},
};

/// A link, its addresses, its gateways and its other routes.
pub struct LinkPlan {
    pub link: Box<dyn Link>,
    pub addresses: Vec<Address>,
    pub gateways: Vec<IpAddr>,
    pub routes: Vec<RouteConfig>,
}

impl LinkPlan {
    /// 127.0.0.0/8 and ::1.
    pub fn loopback() -> io::Result<Self> {
        let own = |ip: IpAddr, bits| Address::new(ip, bits).map_err(|e| invalid(e.to_string()));
        Ok(Self {
            link: Box::new(Lo::new()),
            addresses: vec![
                own(Ipv4Addr::LOCALHOST.into(), 8)?,
                own(Ipv6Addr::LOCALHOST.into(), 128)?,
            ],
            gateways: Vec::new(),
            routes: Vec::new(),
        })
    }
}

/// What is known of an interface, and its routes.
pub fn facts(number: u8, plan: &LinkPlan, routes: &mut route::Table) -> io::Result<InterfaceFacts> {
    let properties = plan.link.properties();
    let mut addresses = Addresses::new();
    let bad = |what: String| invalid(format!("link {}: {what}", properties.name));
    for address in &plan.addresses {
        addresses
            .add(*address)
            .map_err(|_| bad("too many addresses".into()))?;
        let next = NextHop {
            interface: number.into(),
            via: Via::OnLink,
        };
        let route = Route {
            network: address.network(),
            prefix_len: address.prefix_len(),
            mark: 0,
            next,
        };
        routes
            .add(route)
            .map_err(|e| bad(format!("route to {address}: {e:?}")))?;
    }
    // Every IPv6 interface has a link-local address (RFC 4291 §2.8).
    let is_v6 = |a: &Address| a.ip().is_ipv6() && !a.ip().is_loopback();
    if plan.addresses.iter().any(is_v6)
        && !addresses
            .iter()
            .any(|a| proto::ip::address::is_link_local(a.ip()))
    {
        let local = link_local(properties.mac);
        let address = Address::new(local.into(), 64).map_err(|e| bad(e.to_string()))?;
        addresses
            .add(address)
            .map_err(|_| bad("too many addresses".into()))?;
        let next = NextHop {
            interface: number.into(),
            via: Via::OnLink,
        };
        // A second interface's link-local route is not reached without a scope; the first one's stands.
        let _ = routes.add(Route {
            network: address.network(),
            prefix_len: 64,
            mark: 0,
            next,
        });
    }
    let defaults = plan.gateways.iter().map(|&g| RouteConfig::default_via(g));
    for route in defaults.chain(plan.routes.iter().copied()) {
        if let Some(gateway) = route.gateway.filter(|&g| !addresses.is_on_link(g)) {
            return Err(bad(format!("gateway {gateway} is on none of its networks")));
        }
        let next = NextHop {
            interface: number.into(),
            via: route.gateway.map_or(Via::OnLink, Via::Gateway),
        };
        let (network, prefix_len, mark) = (route.network, route.prefix_len, route.mark);
        let route = Route {
            network,
            prefix_len,
            mark,
            next,
        };
        routes
            .add(route)
            .map_err(|e| bad(format!("route to {network}/{prefix_len}: {e:?}")))?;
    }
    Ok(InterfaceFacts {
        name: properties.name.clone(),
        mac: properties.mac,
        mtu: properties.mtu,
        segmentation: properties.segmentation,
        addresses,
    })
}

/// The link-local address of a MAC address (RFC 4291, appendix A).
const fn link_local(mac: MacAddr) -> std::net::Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let be = u16::from_be_bytes;
    std::net::Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        be([a ^ 2, b]),
        be([c, 0xff]),
        be([0xfe, d]),
        be([e, f]),
    )
}
