//! The structures of TCP-AO, byte by byte.

use super::{super::Setting, *};

/// One of those that setsockopt takes, by its number.
fn parse(number: c_int, value: &[u8]) -> io::Result<Keys> {
    match super::super::table::parse(libc::IPPROTO_TCP, number, value)? {
        Setting::Keys(keys) => Ok(keys),
        other => panic!("{other:?}"),
    }
}

fn code<T: std::fmt::Debug>(result: io::Result<T>) -> c_int {
    result.unwrap_err().raw_os_error().expect("an errno")
}

/// A struct tcp_ao_add, as Linux lays it out: 288 bytes.
fn add() -> Vec<u8> {
    let mut value = vec![0; 288];
    value[..2].copy_from_slice(&2_u16.to_ne_bytes());
    value[4..8].copy_from_slice(&[10, 1, 2, 0]);
    value[128..138].copy_from_slice(b"hmac(sha1)");
    value[196] = 1;
    value[202..208].copy_from_slice(&[24, 100, 101, 0, 0, 6]);
    value[208..214].copy_from_slice(b"secret");
    value
}

#[test]
fn keys_that_are_added() {
    let made = |algorithm, len: u8| {
        let key = AoKey::new(algorithm, b"secret", 100, 101).unwrap();
        AoPeerKey {
            peer: [10, 1, 2, 0].into(),
            prefix: 24,
            key: key.with_mac_len(len).unwrap(),
        }
    };
    let wanted = Keys::Add {
        key: made(AoAlgorithm::HmacSha1, 12),
        current: true,
        next: false,
    };
    assert_eq!(parse(38, &add()).unwrap(), wanted);
    let with = |at: usize, bytes: &[u8]| {
        let mut value = add();
        value[at..at + bytes.len()].copy_from_slice(bytes);
        value
    };
    let mut aes = with(128, b"cmac(aes128)");
    aes[196] = 2;
    aes[205..207].copy_from_slice(&[16, 2]);
    let mut key = made(AoAlgorithm::Aes128Cmac, 16);
    key.key = key.key.excluding_options();
    let wanted = Keys::Add {
        key,
        current: false,
        next: true,
    };
    assert_eq!(parse(38, &aes).unwrap(), wanted);
    let wrong: [(usize, &[u8], c_int); 11] = [
        (128, b"hmac(md5)\0", libc::ENOENT),
        (2, &[0, 1], libc::EINVAL),
        (0, &[1, 1], libc::EINVAL),
        (7, &[1], libc::EINVAL),
        (202, &[33], libc::EINVAL),
        (196, &[4], libc::EINVAL),
        (200, &[1], libc::EINVAL),
        (205, &[17], libc::EMSGSIZE),
        (205, &[21], libc::EINVAL),
        (206, &[1], libc::EINVAL),
        (207, &[0], libc::EINVAL),
    ];
    for (at, bytes, errno) in wrong {
        assert_eq!(code(parse(38, &with(at, bytes))), errno, "{at} {bytes:?}");
    }
    assert_eq!(code(parse(38, &with(207, &[81]))), libc::EINVAL);
    assert_eq!(code(parse(38, &add()[..287])), libc::EINVAL);
    let mut all = with(4, &[0; 4]);
    assert_eq!(code(parse(38, &all)), libc::EINVAL, "a prefix of nothing");
    all[202] = 0;
    assert!(parse(38, &all).is_ok());
}

#[test]
fn keys_that_go_and_settings() {
    let mut value = vec![0; 144];
    value[..2].copy_from_slice(&10_u16.to_ne_bytes());
    value[8] = 0xfd;
    value[132] = 3;
    value[138..143].copy_from_slice(&[128, 1, 2, 3, 4]);
    let wanted = Keys::Delete {
        network: ("fd00::".parse().unwrap(), 128),
        ids: (1, 2),
        choice: AoChoice {
            current: Some(3),
            next: Some(4),
        },
    };
    assert_eq!(parse(39, &value).unwrap(), wanted);
    assert_eq!(code(parse(39, &value[..143])), libc::EINVAL);
    let wanted = AoInfo {
        keys: AoChoice {
            current: Some(7),
            next: None,
        },
        required: true,
        accept_icmps: true,
        counts: AoCounts {
            good: 1,
            missing: 4,
            no_key: 3,
            bad: 2,
            icmp: 5,
        },
    };
    let mut bytes = info(&wanted);
    let set = |bytes: &[u8], counts| {
        let wanted = Keys::Set {
            info: wanted,
            counts,
        };
        assert_eq!(parse(40, bytes).unwrap(), wanted);
    };
    set(&bytes, false);
    bytes[0] |= 8;
    set(&bytes, true);
    bytes[0] |= 32;
    assert_eq!(code(parse(40, &bytes)), libc::EINVAL);
    assert_eq!(code(parse(41, &bytes)), libc::ENOPROTOOPT);
}

#[test]
fn keys_that_are_listed() {
    let Keys::Add { key, .. } = parse(38, &add()).unwrap() else {
        panic!("no key")
    };
    let one = AoKeyInfo {
        key,
        is_current: true,
        is_next: false,
        good: 5,
        bad: 6,
    };
    let mut two = AoKeyInfo {
        is_current: false,
        ..one
    };
    two.key.key = AoKey::new(AoAlgorithm::Aes128Cmac, b"k", 7, 8).unwrap();
    let all = [one, two];
    let mut asked = vec![0; KEY_LEN];
    assert_eq!(code(matching(&all, &asked)), libc::EINVAL, "no room");
    asked[272] = 9;
    let (found, room) = matching(&all, &asked).unwrap();
    assert_eq!((found.len(), room), (2, 9));
    assert_eq!(found[0][272], 2);
    assert_eq!(found[0][128..138], *b"hmac(sha1)");
    assert_eq!(found[0][192..198], *b"secret");
    assert_eq!(found[0][276..284], [1, 0, 100, 101, 24, 12, 0, 6]);
    assert_eq!(found[1][276..284], [0, 0, 7, 8, 24, 12, 0, 1]);
    assert_eq!((found[0][288], found[0][296]), (5, 6));
    // The first's own name finds it.
    let mut named = found[0].clone();
    named[276] = 0;
    assert_eq!(matching(&all, &named).unwrap().0.len(), 1);
    named[278] = 9;
    assert_eq!(code(matching(&all, &named)), libc::ENOENT);
    for (flags, count) in [(1, 1), (3, 1), (4, 2)] {
        asked[276] = flags;
        assert_eq!(matching(&all, &asked).unwrap().0.len(), count, "{flags}");
    }
    asked[276] = 2;
    assert_eq!(code(matching(&all, &asked)), libc::ENOENT);
    asked[276] = 5;
    assert_eq!(code(matching(&all, &asked)), libc::EINVAL);
}
