//! The TAP of a run that names no link: which one, and the addresses on it.

use std::{ffi::OsString, fmt::Write as _, net::IpAddr};

use netchan::environment;

use crate::{
    failure::{Failure, failed, usage},
    netlink,
};

/// TAP names tried.
const NAMES_MAX: u8 = 100;

/// The link of a run that names none.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    name: String,
    /// The program's addresses, with prefix lengths.
    addresses: Vec<String>,
    /// This machine's, one for each, with the same prefix lengths.
    machine: Vec<String>,
    gateways: Vec<String>,
}

impl Plan {
    /// What is said once the program is up.
    pub fn announcement(&self, program: &str) -> String {
        let bare = |list: &[String]| {
            let list = list.iter().map(|a| a.split('/').next().unwrap_or_default());
            list.collect::<Vec<_>>().join(" and ")
        };
        format!(
            "{program} is at {} on tap:{}; this machine's end is {}",
            bare(&self.addresses),
            self.name,
            bare(&self.machine)
        )
    }

    /// As the preload library reads it.
    pub fn settings(&self) -> [(&'static str, OsString); 3] {
        let mut link = format!("tap:{}", self.name);
        for peer in &self.machine {
            let _ = write!(link, ",peer={peer}");
        }
        [
            (environment::LINK, link.into()),
            (environment::ADDRESS, self.addresses.join(",").into()),
            (environment::GATEWAY, self.gateways.join(",").into()),
        ]
    }

    /// On the TAP `name` with these addresses; `gateways` are this machine's.
    fn with(name: String, addresses: &[String], gateways: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            name,
            addresses: addresses.to_vec(),
            machine: Vec::new(),
            gateways: gateways.to_vec(),
        };
        let gateways: Vec<IpAddr> = gateways.iter().filter_map(|g| g.parse().ok()).collect();
        for address in addresses {
            let (ip, prefix) = parse(address)
                .ok_or_else(|| format!("--address {address}: write 10.77.0.2/24 or fd77::2/64"))?;
            let gateway = gateways.iter().find(|g| g.is_ipv4() == ip.is_ipv4());
            let machine = match gateway {
                Some(&gateway) => gateway,
                None => neighbour(ip, prefix).ok_or_else(|| {
                    format!(
                        "--address {address} leaves this machine no address on the TAP that is made for the program: give it a shorter \
                         prefix, or a --link"
                    )
                })?,
            };
            plan.machine.push(format!("{machine}/{prefix}"));
            // Not for IPv6: where this machine passes nothing on, programs try IPv4 next only if they are told at once that there is no route.
            if ip.is_ipv4() && gateway.is_none() && plan.gateways.is_empty() {
                plan.gateways.push(machine.to_string());
            }
        }
        Ok(plan)
    }
}

fn parse(address: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = address.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let prefix = prefix.parse().ok()?;
    (prefix <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, prefix))
}

/// The first address of `ip`'s network that a host can have and that is not `ip`.
fn neighbour(ip: IpAddr, prefix: u8) -> Option<IpAddr> {
    let (bits, len) = match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let free = u32::from(len - prefix);
    let hosts = 1_u128.checked_shl(free).unwrap_or(0).wrapping_sub(1);
    // A network of two addresses has two hosts (RFC 3021, RFC 6164).
    let first = bits & !hosts | u128::from(free > 1);
    let other = if first == bits { first + 1 } else { first };
    if free == 0 || (len == 32 && free > 1 && other & hosts == hosts) {
        return None;
    }
    Some(match ip {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(other).ok()?.into()),
        IpAddr::V6(_) => IpAddr::V6(other.into()),
    })
}

/// Chooses a TAP that is free, with these addresses, or with its usual ones.
pub fn default_link(addresses: &[String], gateways: &[String]) -> Result<Plan, Failure> {
    let plan = |name: String| Plan::with(name, addresses, gateways).map_err(usage);
    if !addresses.is_empty() {
        plan(String::new())?; // what cannot be is said first
    }
    let advice = "\nA run without --link makes a TAP device, which takes root (or CAP_NET_ADMIN). As another user: let root make one for you,\n  \
        sudo ip tuntap add nc0 mode tap user $USER && sudo ip addr add 10.77.0.1/24 dev nc0 && sudo ip link set nc0 up\n\
        and name it: netchan run --link tap:nc0 --address 10.77.0.2/24 -- …; or see it all without root: netchan demo";
    let tun = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.map_err(|e| failed(format!("/dev/net/tun: {e}{advice}")))?;
    let may = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::NET_ADMIN)
    });
    if !may {
        return Err(failed(format!("no right to make a network device{advice}")));
    }
    let free = (0..NAMES_MAX).find(|n| netlink::index(&format!("nc{n}")).is_err());
    let n = free.ok_or_else(|| {
        failed(format!(
            "nc0 to nc{} are all taken: name a link with --link",
            NAMES_MAX - 1
        ))
    })?;
    if !addresses.is_empty() {
        return plan(format!("nc{n}"));
    }
    let mut usual = vec![format!("10.77.{n}.2/24")];
    if netlink::has_ipv6() {
        usual.push(match n {
            0 => "fd77::2/64".to_owned(),
            n => format!("fd77:0:0:{n:x}::2/64"),
        });
    }
    Plan::with(format!("nc{n}"), &usual, gateways).map_err(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_the_first_other_address() {
        for (program, machine) in [
            ("10.77.0.2/24", Some("10.77.0.1")),
            ("10.77.0.1/24", Some("10.77.0.2")),
            ("192.168.7.200/16", Some("192.168.0.1")),
            ("10.0.0.4/31", Some("10.0.0.5")),
            ("10.0.0.5/31", Some("10.0.0.4")),
            ("10.0.0.5/30", Some("10.0.0.6")),
            ("10.0.0.5/32", None),
            ("fd77::2/64", Some("fd77::1")),
            ("fd77::1/0", Some("::1")),
            ("fd77::1/128", None),
        ] {
            let (ip, prefix) = parse(program).unwrap();
            let machine = machine.map(|m| m.parse().unwrap());
            assert_eq!(neighbour(ip, prefix), machine, "{program}");
        }
    }

    #[test]
    fn a_gateway_is_this_machine() {
        let given = |list: &[&str]| list.iter().map(|&a| a.to_owned()).collect::<Vec<_>>();
        let addresses = given(&["10.9.0.2/24", "fd09::2/64"]);
        let plan = Plan::with("nc3".to_owned(), &addresses, &given(&["10.9.0.254"])).unwrap();
        let said = plan
            .settings()
            .map(|(_, value)| value.into_string().unwrap());
        assert_eq!(
            said,
            [
                "tap:nc3,peer=10.9.0.254/24,peer=fd09::1/64",
                "10.9.0.2/24,fd09::2/64",
                "10.9.0.254"
            ]
        );
        assert!(
            plan.announcement("x")
                .contains("10.9.0.2 and fd09::2 on tap:nc3")
        );
        for bad in ["10.9.0.2", "x/24", "10.9.0.2/33", "10.9.0.2/32"] {
            let refused = Plan::with(String::new(), &given(&[bad]), &[]).unwrap_err();
            assert!(refused.contains(bad), "{refused}");
        }
    }
}
