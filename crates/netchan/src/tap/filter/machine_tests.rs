//! The pages of machine code, and packets that end where memory does: a load beyond them ends the test.

use super::*;
use crate::tap::filter::{
    interpreter,
    program::{Instruction, check},
};

fn steps(program: &[(u16, u32)]) -> Box<[Step]> {
    let instruction = |&(code, k)| Instruction {
        code,
        k,
        ..Instruction::default()
    };
    let program: Vec<_> = program.iter().map(instruction).collect();
    check(&program).expect("a program")
}

/// What may be done with the page at `address`, as /proc/self/maps says it.
fn access(address: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let is_in = |line: &&str| {
        let ends = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let (first, end) = ends.expect("a range");
        let [first, end] = [first, end].map(|n| usize::from_str_radix(n, 16).expect("a number"));
        (first..end).contains(&address.addr())
    };
    let line = maps.lines().find(is_in).expect("it is mapped");
    line.split(' ').nth(1).expect("its access").to_owned()
}

#[test]
fn pages_are_never_writable_and_executable() {
    let mut pages = Pages::new(PAGE + 1).expect("memory");
    assert_eq!(pages.bytes, 2 * PAGE);
    pages.writable()[PAGE] = 1;
    assert_eq!(access(pages.base.as_ptr()), "rw-p");
    let code = Code::of(&steps(&[(0x06, 9)])).expect("executable memory");
    assert_eq!(access(code._pages.base.as_ptr()), "r-xp");
    assert_eq!(code.run(&[], 0), Some(9));
}

/// Three pages, of which only the one in the middle is there.
fn island() -> Pages {
    let pages = Pages::new(3 * PAGE).expect("memory");
    for page in [0, 2] {
        // SAFETY: within the mapping, to which no reference has been made.
        let start = unsafe { pages.base.as_ptr().add(page * PAGE) };
        // SAFETY: our own page, of which nothing knows yet.
        unsafe { mprotect(start.cast(), PAGE, MprotectFlags::empty()) }.expect("it is ours");
    }
    pages
}

#[test]
fn no_load_leaves_its_packet() {
    let island = island();
    let middle = PAGE..2 * PAGE;
    for (code, by_x) in [
        (0x30, false),
        (0x28, false),
        (0x20, false),
        (0xb1, false),
        (0x50, true),
        (0x48, true),
        (0x40, true),
    ] {
        for k in (0..12).chain([32_768, u32::MAX - 4, u32::MAX]) {
            for x in [0, 1, 5, u32::MAX - 2, u32::MAX] {
                let steps = steps(&[(0x01, x), (code, k), (0x16, 0)]);
                let compiled = Code::of(&steps).expect("executable memory");
                for len in 0..12 {
                    // At the end of the page, and at its beginning.
                    for at in [middle.end - len, middle.start] {
                        // SAFETY: within the mapping.
                        let start = unsafe { island.base.as_ptr().add(at) };
                        // SAFETY: these bytes are there, and nothing writes them.
                        let packet = unsafe { slice::from_raw_parts(start, len) };
                        let expected = interpreter::run(&steps, packet, 0).unwrap_or(0);
                        assert_eq!(compiled.run(packet, 0), Some(expected));
                    }
                }
                if !by_x {
                    break;
                }
            }
        }
    }
}
