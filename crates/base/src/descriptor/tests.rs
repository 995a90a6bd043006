//! Tests of descriptors: each field at its bounds, and nonsense.

use percore::slab::{BufferName, LendingSlab, SharedLayout};

use super::{
    BadDescriptor, Bounds, CHECKSUM_VERIFIED, Descriptor, FORMS, FRAME, HINTS, MORE_FOLLOWS,
    Return, Writer,
};

fn bounds() -> Bounds {
    Bounds {
        layout: SharedLayout::new(10, 2048).unwrap(),
        links: 3,
        frames: true,
    }
}

const GOOD: Descriptor = Descriptor {
    name: BufferName {
        index: 9,
        generation: 0x0403_0201,
    },
    offset: 48,
    length: 2000,
    link: 2,
    flags: MORE_FOLLOWS,
    segment: 1460,
};

#[test]
fn bytes_are_where_the_page_says() {
    let bytes = GOOD.encode();
    let expected = [
        9, 0, 0, 0, 1, 2, 3, 4, 48, 0, 0, 0, 0xd0, 7, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0,
    ];
    assert_eq!(bytes[..24], expected);
    assert_eq!(bytes[24..], [0xb4, 5, 0, 0, 0, 0, 0, 0]);
    for writer in [Writer::Owner, Writer::FarSide] {
        assert_eq!(Descriptor::decode(&bytes, writer, &bounds()), Ok(GOOD));
    }
    let back = Return { name: GOOD.name };
    assert_eq!(back.encode()[..8], expected[..8]);
    assert_eq!(back.encode()[8..], [0; 8]);
    assert_eq!(Return::decode(&back.encode(), bounds().layout), Ok(back));
}

#[test]
fn each_field_has_bounds() {
    type Change = fn(&mut Descriptor);
    let refused: [(Change, BadDescriptor); 13] = [
        (|d| d.name.index = 10, BadDescriptor::NoSuchBuffer),
        (|d| d.name.index = u32::MAX, BadDescriptor::NoSuchBuffer),
        (|d| d.offset = 49, BadDescriptor::Outside),
        (|d| d.length = 2001, BadDescriptor::Outside),
        (|d| d.offset = u32::MAX, BadDescriptor::Outside),
        (
            |d| d.offset = 0u32.wrapping_sub(2000),
            BadDescriptor::Outside,
        ),
        (|d| d.length = u32::MAX - 47, BadDescriptor::Outside),
        (|d| d.length = 0, BadDescriptor::Empty),
        (|d| d.link = 3, BadDescriptor::NoSuchLink),
        (|d| d.link = u32::MAX, BadDescriptor::NoSuchLink),
        (|d| d.flags = 16, BadDescriptor::UnknownFlag),
        (|d| d.flags = 1 << 31, BadDescriptor::UnknownFlag),
        (|d| d.flags = FRAME, BadDescriptor::Segment),
    ];
    for (change, why) in refused {
        let mut descriptor = GOOD;
        change(&mut descriptor);
        let bytes = descriptor.encode();
        for writer in [Writer::Owner, Writer::FarSide] {
            let read = Descriptor::decode(&bytes, writer, &bounds());
            assert_eq!(read, Err(why), "{descriptor:?}");
        }
    }
    for at in 26..32 {
        let mut bytes = GOOD.encode();
        bytes[at] = 1;
        let read = Descriptor::decode(&bytes, Writer::Owner, &bounds());
        let why = match at {
            26 | 27 => BadDescriptor::Segment,
            _ => BadDescriptor::Reserved,
        };
        assert_eq!(read, Err(why));
    }
    let whole = Descriptor {
        offset: 0,
        length: 2048,
        ..GOOD
    };
    let read = Descriptor::decode(&whole.encode(), Writer::FarSide, &bounds());
    assert_eq!(read, Ok(whole));
}

#[test]
fn the_far_side_verifies_nothing() {
    let verified = Descriptor {
        flags: CHECKSUM_VERIFIED | MORE_FOLLOWS,
        ..GOOD
    };
    let read = |writer| Descriptor::decode(&verified.encode(), writer, &bounds());
    assert_eq!(read(Writer::Owner), Ok(verified));
    assert_eq!(read(Writer::FarSide), Err(BadDescriptor::TrustedFlag));
}

#[test]
fn frames_come_where_they_may() {
    let frame = Descriptor {
        flags: FRAME | MORE_FOLLOWS,
        segment: 0,
        ..GOOD
    };
    for writer in [Writer::Owner, Writer::FarSide] {
        for (frames, expected) in [(true, Ok(frame)), (false, Err(BadDescriptor::Frame))] {
            let bounds = Bounds { frames, ..bounds() };
            let read = Descriptor::decode(&frame.encode(), writer, &bounds);
            assert_eq!(read, expected, "{writer:?}");
            let read = Descriptor::decode(&GOOD.encode(), writer, &bounds);
            assert_eq!(read, Ok(GOOD), "{writer:?}");
        }
    }
}

#[test]
fn a_return_has_bounds() {
    let layout = bounds().layout;
    let mut bytes = Return { name: GOOD.name }.encode();
    bytes[0] = 10;
    let refused = Return::decode(&bytes, layout);
    assert_eq!(refused, Err(BadDescriptor::NoSuchBuffer));
    for at in 8..16 {
        let mut bytes = Return { name: GOOD.name }.encode();
        bytes[at] = 0x80;
        let refused = Return::decode(&bytes, layout);
        assert_eq!(refused, Err(BadDescriptor::Reserved));
    }
}

#[cfg(debug_assertions)]
const STEPS: u32 = 100_000;
#[cfg(not(debug_assertions))]
const STEPS: u32 = 1_000_000;

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// A true one, of which some bytes are scribbled over.
fn scribble<const BYTES: usize>(random: &mut u64, mut bytes: [u8; BYTES]) -> [u8; BYTES] {
    for _ in 0..next(random) % 4 {
        let [at, byte, mask, ..] = next(random).to_le_bytes();
        bytes[usize::from(at) % BYTES] = byte & mask;
    }
    bytes
}

/// What is read is inside the slab, without trusted flags, and says what the bytes said. What is lent comes back once, by its name alone.
#[test]
fn nonsense_is_refused_or_harmless() {
    let given = std::env::var("NETCHAN_SEED").ok();
    let seed = given
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(percore::clock::now_ns);
    println!("NETCHAN_SEED={seed}");
    let random = &mut (seed | 1);
    let mut slab = LendingSlab::new(10, 2048, 8, 10).unwrap();
    let bounds = Bounds {
        layout: slab.layout(),
        links: 3,
        frames: true,
    };
    let (mut read, mut refused, mut lent) = (0, 0, Vec::new());
    for _ in 0..STEPS {
        while lent.len() < 4 {
            let buffer = slab.alloc().unwrap();
            lent.push(slab.lend(buffer).unwrap());
        }
        let name = lent[usize::from(next(random).to_le_bytes()[4]) % 4];
        let bytes = scribble(random, Descriptor { name, ..GOOD }.encode());
        match Descriptor::decode(&bytes, Writer::FarSide, &bounds) {
            Ok(descriptor) => {
                read += 1;
                assert_eq!(descriptor.encode(), bytes);
                assert_eq!(descriptor.flags & !(HINTS | FORMS), 0);
                assert!(descriptor.flags & FRAME == 0 || descriptor.segment == 0);
                let is_lent = lent.contains(&descriptor.name);
                let (offset, length) = (descriptor.offset as usize, descriptor.length as usize);
                let mut copy = [0; 2048];
                let looked = slab.look(descriptor.name);
                assert_eq!(looked.is_ok(), is_lent);
                if let Ok(buffer) = looked {
                    buffer.copy_out(offset, &mut copy[..length]).unwrap();
                }
            }
            Err(_) => refused += 1,
        }
        let bytes = scribble(random, Return { name }.encode());
        if let Ok(back) = Return::decode(&bytes, bounds.layout) {
            assert_eq!(back.encode(), bytes);
            let taken = slab.take_back(back.name).is_ok();
            assert_eq!(taken, lent.contains(&back.name));
            lent.retain(|name| *name != back.name);
        }
        assert_eq!(slab.lent(), lent.len());
    }
    assert!(read > STEPS / 10 && refused > STEPS / 10);
    assert_eq!(slab.take_back_all(), lent.len());
    assert_eq!(slab.available(), 10);
}
