//! Routes beside those that addresses and gateways make: where one leads, by which gateway, and for which mark.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One `[[link.route]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// Where it leads.
    pub network: IpAddr,
    /// Bits of `network` that count: 0 to 32, or to 128.
    pub prefix_len: u8,
    /// The next hop; `None`: all of that is on the link.
    pub gateway: Option<IpAddr>,
    /// It is for what is marked so (SO_MARK) only, and goes before all routes without a mark; 0: for all.
    pub mark: u32,
}

impl RouteConfig {
    /// To everything of the gateway's family, for all.
    #[must_use]
    pub const fn default_via(gateway: IpAddr) -> Self {
        let network = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            network,
            prefix_len: 0,
            gateway: Some(gateway),
            mark: 0,
        }
    }

    /// From what a person wrote; an empty `to` is everything of the gateway's family.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn read(to: &str, gateway: Option<&str>, mark: u32) -> Result<Self, String> {
        let read = |text: &str| {
            let ip = text.parse::<IpAddr>();
            ip.map_err(|_| format!("gateway `{text}` is not an IP address"))
        };
        let gateway = gateway.map(read).transpose()?;
        if to.is_empty() {
            let gateway = gateway.ok_or("a route without a network needs a gateway")?;
            let whole = Self::default_via(gateway);
            return Ok(Self { mark, ..whole });
        }
        let (network, prefix_len) = network(to)?;
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != network.is_ipv4()) {
            return Err(format!("`{to}` and its gateway are of two families"));
        }
        Ok(Self {
            network,
            prefix_len,
            gateway,
            mark,
        })
    }
}

/// A network with its prefix length; bits beyond that are a slip of the hand.
fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let bad = || {
        format!("`{text}` is not a network; write `10.0.0.0/8`, `fd00::/8`, or `0.0.0.0/0` for all")
    };
    let (ip, prefix) = text.split_once('/').ok_or_else(bad)?;
    let ip: IpAddr = ip.parse().map_err(|_| bad())?;
    let prefix_len: u8 = prefix.parse().map_err(|_| bad())?;
    let (longest, beyond) = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            (32, ip.to_bits() & mask != 0)
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            (128, ip.to_bits() & mask != 0)
        }
    };
    if prefix_len > longest {
        return Err(bad());
    }
    if beyond {
        return Err(format!(
            "`{text}` has bits beyond its prefix; write the network's own address"
        ));
    }
    if ip.is_multicast() {
        return Err(format!("`{text}` is of groups, which are sent to by link"));
    }
    Ok((ip, prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read() {
        let read = |to, gateway, mark| {
            let route = RouteConfig::read(to, gateway, mark)?;
            Ok::<_, String>((route.network.to_string(), route.prefix_len, route.gateway))
        };
        let to = |text: &str, len, gateway: &str| {
            let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
            Ok((text.to_owned(), len, gateway))
        };
        assert_eq!(read("", Some("10.0.0.1"), 0), to("0.0.0.0", 0, "10.0.0.1"));
        assert_eq!(read("", Some("fe80::1"), 7), to("::", 0, "fe80::1"));
        assert_eq!(read("10.0.0.0/8", None, 0), to("10.0.0.0", 8, ""));
        assert_eq!(
            read("10.0.0.1/32", Some("10.1.0.1"), 0),
            to("10.0.0.1", 32, "10.1.0.1")
        );
        assert_eq!(read("::1/128", None, 0), to("::1", 128, ""));
        assert_eq!(RouteConfig::read("::/0", None, 9).map(|r| r.mark), Ok(9));
        for (text, gateway, says) in [
            ("", None, "needs a gateway"),
            ("10.0.0.0", None, "not a network"),
            ("10.0.0.0/33", None, "not a network"),
            ("10.0.0.0/-1", None, "not a network"),
            ("fd00::/129", None, "not a network"),
            ("ten/8", None, "not a network"),
            ("10.0.0.1/8", None, "bits beyond"),
            ("fd00::1/127", None, "bits beyond"),
            ("224.0.0.0/4", None, "groups"),
            ("10.0.0.0/8", Some("fe80::1"), "two families"),
            (
                "10.0.0.0/8",
                Some("router"),
                "`router` is not an IP address",
            ),
        ] {
            let error = RouteConfig::read(text, gateway, 0).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}
