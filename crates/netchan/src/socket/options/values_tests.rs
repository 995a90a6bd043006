//! What setsockopt's bytes mean.

use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use proto::tcp::CongestionControl;

use super::super::{CallerFlag, CallerOption, Device, Setting, SocketOption, parse};

fn int(level: i32, name: i32, value: i32) -> Result<Setting, i32> {
    bytes(level, name, &value.to_ne_bytes())
}

fn bytes(level: i32, name: i32, value: &[u8]) -> Result<Setting, i32> {
    parse(level, name, value).map_err(|error| error.raw_os_error().expect("an errno"))
}

fn option(option: SocketOption) -> Result<Setting, i32> {
    Ok(Setting::Option(option))
}

#[test]
fn flags_and_numbers() {
    assert_eq!(
        int(IPPROTO_TCP, libc::TCP_NODELAY, 7),
        option(SocketOption::NoDelay(true))
    );
    assert_eq!(
        int(SOL_SOCKET, libc::SO_KEEPALIVE, 0),
        option(SocketOption::KeepAlive(false))
    );
    assert_eq!(
        int(SOL_SOCKET, libc::SO_RCVBUF, 4096),
        option(SocketOption::ReceiveBuffer(4096))
    );
    let hour = SocketOption::KeepIdle(Duration::from_secs(3600));
    assert_eq!(int(IPPROTO_TCP, libc::TCP_KEEPIDLE, 3600), option(hour));
    assert_eq!(
        bytes(IPPROTO_IP, libc::IP_TOS, &[0x10]),
        option(SocketOption::TypeOfService(0x10))
    );
    assert_eq!(
        int(IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, -1),
        option(SocketOption::HopLimit(64))
    );
    assert_eq!(
        int(IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 0),
        option(SocketOption::HopLimit(0))
    );
}

/// A struct tcp_md5sig, as Linux lays it out: 216 bytes.
#[test]
fn keys_of_peers() {
    let mut value = vec![0; 216];
    value[..2].copy_from_slice(&2_u16.to_ne_bytes());
    value[4..8].copy_from_slice(&[10, 1, 2, 3]);
    value[128..130].copy_from_slice(&[1, 24]);
    value[130..132].copy_from_slice(&6_u16.to_ne_bytes());
    value[136..142].copy_from_slice(b"secret");
    let wanted = |prefix, key: &[u8]| {
        option(SocketOption::Md5Key {
            peer: [10, 1, 2, 3].into(),
            prefix,
            key: proto::tcp::Md5Key::new(key),
        })
    };
    assert_eq!(bytes(IPPROTO_TCP, 14, &value), wanted(32, b"secret"));
    assert_eq!(bytes(IPPROTO_TCP, 32, &value), wanted(24, b"secret"));
    value[130] = 81;
    assert_eq!(bytes(IPPROTO_TCP, 14, &value), Err(libc::EINVAL));
    value[130] = 0;
    assert_eq!(bytes(IPPROTO_TCP, 14, &value), wanted(32, b""), "it goes");
    value[128] = 2;
    assert_eq!(bytes(IPPROTO_TCP, 32, &value), Err(libc::EINVAL));
    value[..2].fill(1);
    assert_eq!(bytes(IPPROTO_TCP, 14, &value), Err(libc::EINVAL));
    assert_eq!(bytes(IPPROTO_TCP, 14, &value[..215]), Err(libc::EINVAL));
}

/// As Linux: a negative TCP_LINGER2 is no FIN-WAIT-2 at all, a negative TCP_DEFER_ACCEPT is off.
#[test]
fn handshakes_and_ends() {
    use SocketOption as O;
    let seconds = Duration::from_secs;
    for (name, value, means) in [
        (libc::TCP_SYNCNT, 3, O::SynCount(3)),
        (libc::TCP_LINGER2, 20, O::Linger2(Some(seconds(20)))),
        (libc::TCP_LINGER2, -5, O::Linger2(None)),
        (libc::TCP_DEFER_ACCEPT, 5, O::DeferAccept(seconds(5))),
        (libc::TCP_DEFER_ACCEPT, -1, O::DeferAccept(seconds(0))),
    ] {
        assert_eq!(int(IPPROTO_TCP, name, value), option(means));
    }
}

#[test]
fn what_is_out_of_range_is_einval() {
    for (level, name, value) in [
        (IPPROTO_IP, libc::IP_TTL, 0),
        (IPPROTO_IP, libc::IP_TTL, 256),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE, 0),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE, 32_768),
        (IPPROTO_TCP, libc::TCP_KEEPCNT, 128),
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, -1),
        (IPPROTO_TCP, libc::TCP_MAXSEG, 70_000),
        (IPPROTO_TCP, libc::TCP_SYNCNT, 0),
        (IPPROTO_TCP, libc::TCP_SYNCNT, 128),
    ] {
        assert_eq!(int(level, name, value), Err(libc::EINVAL), "{name} {value}");
    }
}

/// Every length of every option: an answer, never a panic.
#[test]
fn short_values_are_einval() {
    for level in [SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, 77] {
        for name in -1..80 {
            for len in 0..24 {
                let _ = bytes(level, name, &vec![0xff; len]);
            }
            // As Linux: where an option of IPPROTO_IP may be a byte, no byte is a 0.
            match bytes(level, name, &[]) {
                // No name is no device.
                Ok(Setting::Device(Device::Any)) if name == libc::SO_BINDTODEVICE => {}
                Ok(setting) if level == IPPROTO_IP => {
                    assert_eq!(int(level, name, 0), Ok(setting), "{name}");
                }
                Ok(setting) => panic!("{level} {name}: {setting:?} from nothing"),
                Err(_) => {}
            }
        }
    }
}

#[test]
fn linger_and_times() {
    let on = [1_i32.to_ne_bytes(), 5_i32.to_ne_bytes()].concat();
    let five = SocketOption::Linger(Some(Duration::from_secs(5)));
    assert_eq!(bytes(SOL_SOCKET, libc::SO_LINGER, &on), option(five));
    assert_eq!(
        bytes(SOL_SOCKET, libc::SO_LINGER, &on[..4]),
        Err(libc::EINVAL)
    );
    let time = |seconds: i64, us: i64| {
        let raw = [seconds.to_ne_bytes(), us.to_ne_bytes()].concat();
        bytes(SOL_SOCKET, libc::SO_RCVTIMEO, &raw)
    };
    assert_eq!(
        time(1, 500_000),
        Ok(Setting::Caller(CallerOption::ReceiveTimeout(Some(
            Duration::from_millis(1500)
        ))))
    );
    assert_eq!(
        time(0, 0),
        Ok(Setting::Caller(CallerOption::ReceiveTimeout(None)))
    );
    // As Linux: a negative time does not wait at all.
    let at_once = Ok(Setting::Caller(CallerOption::ReceiveTimeout(Some(
        Duration::ZERO,
    ))));
    assert_eq!(time(-1, 0), at_once);
    assert_eq!(time(i64::MIN, 999_999), at_once);
    assert_eq!(time(-1, -1), Err(libc::EDOM));
    assert_eq!(time(0, 1_000_000), Err(libc::EDOM));
    assert_eq!(time(i64::MAX, 999_999).map(|_| ()), Ok(()));
}

/// What a socket is asked to tell.
#[test]
fn what_is_asked_for() {
    let ask = |what, on| Ok(Setting::Caller(CallerOption::Flag(what, on)));
    assert_eq!(
        int(SOL_SOCKET, libc::SO_ZEROCOPY, 1),
        ask(CallerFlag::ZeroCopy, true)
    );
    assert_eq!(
        int(SOL_SOCKET, libc::SO_ZEROCOPY, 0),
        ask(CallerFlag::ZeroCopy, false)
    );
    assert_eq!(int(SOL_SOCKET, libc::SO_ZEROCOPY, 2), Err(libc::EINVAL));
    assert_eq!(int(IPPROTO_TCP, 36, 1), ask(CallerFlag::Unread, true));
    assert_eq!(int(IPPROTO_TCP, 36, 2), Err(libc::EINVAL));
    let software = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    assert_eq!(
        int(SOL_SOCKET, libc::SO_TIMESTAMPING, software.cast_signed()),
        Ok(Setting::Caller(CallerOption::Timestamping(software)))
    );
    assert_eq!(
        int(SOL_SOCKET, libc::SO_MARK, -1),
        option(SocketOption::Mark(u32::MAX))
    );
}

#[test]
fn what_is_not_served_says_so() {
    for name in [libc::SO_ATTACH_FILTER, libc::SO_PEEK_OFF, libc::SO_TXTIME] {
        assert_eq!(int(SOL_SOCKET, name, 1), Err(libc::ENOPROTOOPT), "{name}");
    }
    assert_eq!(int(IPPROTO_TCP, libc::TCP_ULP, 1), Err(libc::ENOPROTOOPT));
    assert_eq!(
        int(SOL_SOCKET, libc::SO_PRIORITY, 6),
        Ok(Setting::Caller(CallerOption::Priority(6)))
    );
    assert_eq!(
        bytes(IPPROTO_TCP, libc::TCP_CONGESTION, b"reno\0"),
        option(SocketOption::Congestion(CongestionControl::NewReno))
    );
    assert_eq!(
        bytes(IPPROTO_TCP, libc::TCP_CONGESTION, b"dctcp"),
        option(SocketOption::Congestion(CongestionControl::Dctcp))
    );
    assert_eq!(
        bytes(IPPROTO_TCP, libc::TCP_CONGESTION, b"vegas"),
        Err(libc::ENOENT)
    );
}
