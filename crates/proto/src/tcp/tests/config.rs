//! Names of settings: those of Linux's sysctls and socket options where there are any.

use super::*;

#[test]
fn settings_have_names() {
    let controls = CongestionControl::ALL.map(CongestionControl::name);
    assert_eq!(controls, ["reno", "cubic", "dctcp", "bbr"]);
    let ecn = EcnMode::ALL.map(EcnMode::name);
    assert_eq!(ecn, ["off", "passive", "classic", "accurate"]);
    let probing = MtuProbing::ALL.map(MtuProbing::name);
    assert_eq!(probing, ["off", "blackhole", "always"]);
    let icmp = IcmpWhileConnecting::ALL.map(IcmpWhileConnecting::name);
    assert_eq!(icmp, ["end", "note"]);
    let cookies = SynCookies::ALL.map(SynCookies::name);
    assert_eq!(cookies, ["off", "when-full", "always"]);
}

#[test]
fn settings_are_found_by_name() {
    for control in CongestionControl::ALL {
        assert_eq!(CongestionControl::called(control.name()), Some(control));
    }
    for mode in EcnMode::ALL {
        assert_eq!(EcnMode::called(mode.name()), Some(mode));
    }
    for mode in MtuProbing::ALL {
        assert_eq!(MtuProbing::called(mode.name()), Some(mode));
    }
    for mode in IcmpWhileConnecting::ALL {
        assert_eq!(IcmpWhileConnecting::called(mode.name()), Some(mode));
    }
    for name in ["", "vegas", "Off", "offf"] {
        assert_eq!(CongestionControl::called(name), None);
        assert_eq!(EcnMode::called(name), None);
        assert_eq!(MtuProbing::called(name), None);
        assert_eq!(IcmpWhileConnecting::called(name), None);
    }
}

/// RFC 9293 MUST-28: no sooner than after two hours of silence.
#[test]
fn keep_alive_is_rare() {
    let keepalive = Keepalive::default();
    assert_eq!(keepalive.idle.as_secs(), 2 * 60 * 60);
    assert_eq!((keepalive.interval.as_secs(), keepalive.probes), (75, 9));
}
