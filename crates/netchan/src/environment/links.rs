//! The links of a stack that is in another process, as text for a program's environment ([`INTERFACES`](super::INTERFACES)): of each its name, link address, MTU
//! and addresses with prefix lengths, by blanks, and a semicolon between two links.

use std::{fmt::Write, net::IpAddr};

use crate::LinkFacts;

/// Links as text.
#[must_use]
pub fn links_said(links: &[LinkFacts]) -> String {
    let mut said = String::new();
    for link in links {
        let mac = link.mac.map(|byte| format!("{byte:02x}")).join(":");
        let _ = write!(said, "{} {mac} {}", link.name, link.mtu); // a String takes it
        for (ip, bits) in &link.addresses {
            let _ = write!(said, " {ip}/{bits}"); // as above
        }
        said.push(';');
    }
    said
}

/// Links of text; what is none is left out.
#[must_use]
pub fn links_of(said: &str) -> Vec<LinkFacts> {
    said.split(';').filter_map(link_of).collect()
}

fn link_of(said: &str) -> Option<LinkFacts> {
    let mut words = said.split(' ');
    let name = words.next()?.to_owned();
    let mut mac = [0; 6];
    let mut bytes = words.next()?.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    let mtu = words.next()?.parse().ok()?;
    let address = |word: &str| {
        let (ip, bits) = word.split_once('/')?;
        Some((ip.parse::<IpAddr>().ok()?, bits.parse().ok()?))
    };
    let addresses: Vec<_> = words.filter_map(address).collect();
    Some(LinkFacts {
        name,
        mac,
        mtu,
        is_loopback: addresses.iter().any(|(ip, _)| ip.is_loopback()),
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_were_written() {
        let link = |name: &str, addresses: &[(&str, u8)]| LinkFacts {
            name: name.to_owned(),
            mac: [2, 0, 0xab, 0, 0, 1],
            mtu: 1500,
            addresses: (addresses.iter())
                .map(|(ip, bits)| (ip.parse().unwrap(), *bits))
                .collect(),
            is_loopback: name == "lo",
        };
        let links = [
            link("nc0", &[("10.77.0.2", 24), ("fd77::2", 64)]),
            link("bare", &[]),
            link("lo", &[("127.0.0.1", 8)]),
        ];
        assert_eq!(links_of(&links_said(&links)), links);
        assert_eq!(links_of("nc0 02:00 1500;x;;"), []);
    }
}
