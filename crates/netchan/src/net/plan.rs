//! A link as it was asked for, and what follows for the host: its addresses and its routes.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proto::ip::address::{Address, Addresses};

use crate::{
    config::RouteConfig,
    driver::network::{InterfaceFacts, Network},
    errno::invalid,
    link::{Link, lease::LENDER, lo::Lo},
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
            link: Box::new(Lo::default()),
            addresses: vec![
                own(Ipv4Addr::LOCALHOST.into(), 8)?,
                own(Ipv6Addr::LOCALHOST.into(), 128)?,
            ],
            gateways: Vec::new(),
            routes: Vec::new(),
        })
    }
}

/// Adds an interface to the networks, with its addresses and routes.
pub fn add_interface(net: &mut Network, plan: &LinkPlan) -> io::Result<()> {
    let properties = plan.link.properties();
    let bad = |what: String| invalid(format!("link {}: {what}", properties.name));
    let number = net.interfaces.len();
    let lease = plan.link.lease();
    net.interfaces.push(InterfaceFacts {
        name: properties.name.clone(),
        mac: properties.mac,
        mtu: properties.mtu,
        mtu_max: properties.mtu,
        segmentation: properties.segmentation,
        addresses: Addresses::new(),
        lender: lease.is_some().then_some(LENDER),
        pipes: lease.as_ref().map(|lease| lease.pipes()),
    });
    let mut leased = lease.map_or_else(Vec::new, |lease| lease.addresses());
    leased.retain(|address| !address.ip().is_loopback()); // these are shared or not
    for address in &plan.addresses {
        net.add_address(number, *address).map_err(bad)?;
    }
    for address in &leased {
        // A link-local one has come with one of IPv6 already.
        if !net.interfaces[number].addresses.is_local(address.ip()) {
            net.add_address(number, *address).map_err(bad)?;
        }
    }
    if !leased.is_empty() {
        for family in [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
        ] {
            net.add_route(number, (family, 0, 0), None).map_err(bad)?;
        }
    }
    let defaults = plan.gateways.iter().map(|&g| RouteConfig::default_via(g));
    for route in defaults.chain(plan.routes.iter().copied()) {
        let to = (route.network, route.prefix_len, route.mark);
        net.add_route(number, to, route.gateway).map_err(bad)?;
    }
    Ok(())
}
