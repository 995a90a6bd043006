//! Martians: negative 6, 11, 12, 16, 50.

use super::*;

fn ours() -> Addresses {
    let mut all = Addresses::new();
    all.add("10.77.0.2/24".parse().unwrap()).unwrap();
    all.add("fd77::2/64".parse().unwrap()).unwrap();
    all
}
fn judge(from: &str, to: &str) -> Result<Destination, Martian> {
    addresses(from.parse().unwrap(), to.parse().unwrap(), &ours(), false)
}

#[test]
fn negative_11_bad_ipv4_sources() {
    for (from, why) in [
        ("255.255.255.255", Martian::BroadcastSource),
        ("10.77.0.255", Martian::BroadcastSource),
        ("240.0.0.1", Martian::BroadcastSource),
        ("224.0.0.1", Martian::MulticastSource),
        ("127.0.0.1", Martian::LoopbackSource),
        ("0.0.0.0", Martian::UnspecifiedSource),
        ("0.1.2.3", Martian::UnspecifiedSource),
        ("10.77.0.2", Martian::OwnSource), // LAND
    ] {
        assert_eq!(judge(from, "10.77.0.2"), Err(why), "{from}");
        assert!(judge(from, "10.77.0.255").is_err(), "{from}");
    }
}

#[test]
fn negative_50_bad_ipv6_sources() {
    for (from, why) in [
        ("::1", Martian::LoopbackSource),
        ("::", Martian::UnspecifiedSource),
        ("ff02::1", Martian::MulticastSource),
        ("::ffff:10.77.0.9", Martian::MappedAddress),
        ("::10.77.0.9", Martian::MappedAddress),
        ("fd77::2", Martian::OwnSource),
    ] {
        assert_eq!(judge(from, "fd77::2"), Err(why), "{from}");
    }
    assert_eq!(
        judge("::", "ff02::1:ff00:2"),
        Ok(Destination::Group),
        "duplicate address detection"
    );
}

#[test]
fn destinations_are_told_apart() {
    assert_eq!(judge("10.77.0.9", "10.77.0.2"), Ok(Destination::Ours));
    assert_eq!(
        judge("10.77.0.9", "10.77.0.255"),
        Ok(Destination::Broadcast)
    ); // negative 12: TCP refuses
    assert_eq!(judge("10.77.0.9", "10.77.0.3"), Err(Martian::NotOurs));
    assert_eq!(
        judge("10.77.0.9", "127.0.0.1"),
        Err(Martian::BadDestination)
    );
    assert_eq!(judge("10.77.0.9", "0.0.0.0"), Err(Martian::BadDestination));
    assert_eq!(judge("fd77::9", "::1"), Err(Martian::BadDestination));
    assert_eq!(judge("fd77::9", "::"), Err(Martian::BadDestination));
    assert_eq!(
        judge("fd77::9", "::ffff:10.77.0.2"),
        Err(Martian::MappedAddress)
    );
    assert_eq!(judge("fd77::9", "10.77.0.2"), Err(Martian::BadDestination));
}

#[test]
fn loopback_is_home_to_our_own() {
    let on_lo =
        |from: &str, to: &str| addresses(from.parse().unwrap(), to.parse().unwrap(), &ours(), true);
    assert_eq!(on_lo("127.0.0.1", "127.0.0.1"), Ok(Destination::Ours));
    assert_eq!(on_lo("::1", "::1"), Ok(Destination::Ours));
    assert_eq!(on_lo("10.77.0.2", "10.77.0.2"), Ok(Destination::Ours));
    assert_eq!(
        on_lo("224.0.0.1", "127.0.0.1"),
        Err(Martian::MulticastSource)
    );
    assert_eq!(
        on_lo("0.0.0.0", "127.0.0.1"),
        Err(Martian::UnspecifiedSource)
    );
    assert_eq!(on_lo("127.0.0.1", "10.1.1.1"), Err(Martian::NotOurs));
}
