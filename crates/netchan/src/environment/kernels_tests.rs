//! Which addresses stay with the kernel.

use super::{Kernels, Prefix};
use crate::environment::{KERNEL, LOOPBACK};

#[test]
fn loopback_and_named_prefixes_are_the_kernels() {
    let read = |loopback: &'static str, text: &'static str| {
        Kernels::read(&move |name: &str| match name {
            KERNEL => Some(text.to_owned()),
            LOOPBACK => Some(loopback.to_owned()),
            _ => None,
        })
    };
    let kernels = read("false", " 10.0.0.0/8, fd00:1::/32,").unwrap();
    for ip in [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "10.200.0.1",
        "::ffff:10.0.0.1",
        "fd00:1:2::3",
    ] {
        assert!(kernels.has(ip.parse().unwrap()), "{ip}");
        assert!(kernels.has_peer(ip.parse().unwrap()), "{ip}");
    }
    for ip in ["11.0.0.1", "fd00:2::1", "192.168.1.1", "128.0.0.1"] {
        assert!(!kernels.has(ip.parse().unwrap()), "{ip}");
    }
    assert!(kernels.has_peer("0.0.0.0".parse().unwrap()));
    let own = read("true", "").unwrap();
    for ip in ["127.0.0.1", "::1", "::"] {
        assert!(!own.has_peer(ip.parse().unwrap()), "{ip}");
    }
    assert!(own.with_loopback().has("127.0.0.1".parse().unwrap()));
    let wrong = read("false", "10.0.0.0/8,x").unwrap_err().to_string();
    assert!(wrong.contains("NETCHAN_KERNEL: 'x'"), "{wrong}");
}

#[test]
fn prefixes_of_every_length() {
    assert!(
        Prefix::parse("0.0.0.0/0")
            .unwrap()
            .contains("9.9.9.9".parse().unwrap())
    );
    assert!(
        Prefix::parse("::/0")
            .unwrap()
            .contains("fd00::1".parse().unwrap())
    );
    assert!(
        !Prefix::parse("::/0")
            .unwrap()
            .contains("1.1.1.1".parse().unwrap())
    );
    assert!(
        Prefix::parse("1.2.3.4")
            .unwrap()
            .contains("1.2.3.4".parse().unwrap())
    );
    assert!(
        !Prefix::parse("1.2.3.4/31")
            .unwrap()
            .contains("1.2.3.6".parse().unwrap())
    );
    for bad in [
        "",
        "x",
        "1.2.3.4/33",
        "1.2.3.4/-1",
        "::/129",
        "1.2.3/8",
        "/8",
        "1.2.3.4/",
    ] {
        assert_eq!(Prefix::parse(bad), None, "{bad}");
    }
}
