//! Both sides of an edge in one process.

use super::*;
use crate::doorbell::Sleep;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type Ends = (Side<[u8; 32], [u8; 16]>, Side<[u8; 32], [u8; 16]>);

fn layout() -> EdgeLayout {
    EdgeLayout::new(8).unwrap()
}

fn pair() -> Ends {
    let (near, end) = create(layout()).unwrap();
    let far = map(&end.file, layout(), end.socket, Which::Mapper).unwrap();
    (near, far)
}

fn is_readable(bell: &Bell) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn items_and_returns_pass_in_both_directions() {
    let (mut near, mut far) = pair();
    for round in 0..30 {
        let (there, back) = ([round; 32], [round; 16]);
        for (from, to) in [
            (&mut near.sending, &mut far.receiving),
            (&mut far.sending, &mut near.receiving),
        ] {
            assert!(to.is_empty());
            from.stage(there).unwrap();
            assert!(to.is_empty(), "not published");
            from.publish();
            assert_eq!(to.take_one(), Some(there));
            to.give_back(back).unwrap();
            to.publish_returns();
            let mut came = Vec::new();
            assert_eq!(from.take_returns(9, |it| came.push(it)), 1);
            assert_eq!(came, [back]);
        }
    }
}

#[test]
fn a_full_ring_gives_the_item_back() {
    let (mut near, mut far) = pair();
    for n in 0..8 {
        near.sending.stage([n; 32]).unwrap();
    }
    assert_eq!(near.sending.stage([9; 32]), Err([9; 32]));
    assert_eq!(near.sending.room(), 0);
    near.sending.publish();
    let mut n = 0;
    assert_eq!(
        far.receiving.take(99, |it| {
            assert_eq!(it, [n; 32]);
            n += 1
        }),
        8
    );
    assert_eq!(near.sending.room(), 8);
}

#[test]
fn a_sleeping_side_is_woken_through_its_descriptor() {
    let (near, far) = pair();
    for (ringer, sleeper) in [(&near, &far), (&far, &near)] {
        ringer.far_bell.ring();
        assert!(!is_readable(&sleeper.own_bell), "it is awake");
        sleeper.own_bell.arm(Sleep::Fd);
        assert!(!is_readable(&sleeper.own_bell));
        assert!(ringer.far_bell.ring(), "one system call");
        assert!(!ringer.far_bell.ring(), "and no second one");
        assert!(is_readable(&sleeper.own_bell));
        sleeper.own_bell.disarm();
        assert!(!is_readable(&sleeper.own_bell));
    }
}

#[test]
fn the_end_of_a_side_shows() {
    let (near, far) = pair();
    assert!(!near.sending.is_over() && !near.receiving.is_over());
    drop(far);
    assert!(near.sending.is_over() && near.receiving.is_over());
    assert!(is_readable(&near.own_bell), "end of file");
}

#[test]
fn a_file_of_another_layout_is_refused() {
    let (_near, end) = create::<[u8; 32], [u8; 16]>(layout()).unwrap();
    let larger = EdgeLayout::new(1024).unwrap();
    let refused = map::<[u8; 32], [u8; 16]>(&end.file, larger, end.socket, Which::Mapper);
    assert!(matches!(refused, Err(MapError::Size { .. })), "{refused:?}");
    let (other, socket) = socket_pair().unwrap();
    let refused = map::<[u8; 32], [u8; 16]>(&other, layout(), Own::keep(socket), Which::Mapper);
    assert!(matches!(refused, Err(MapError::NotSealed)), "{refused:?}");
}

#[test]
fn only_powers_of_two_are_numbers_of_slots() {
    for slots in [0, 3, 1 << 17] {
        assert_eq!(EdgeLayout::new(slots), None);
    }
    assert_eq!(
        EdgeLayout::new(1 << 16).map(EdgeLayout::slots),
        Some(1 << 16)
    );
}

/// Whatever stands in the memory: nothing outside is touched, nothing hangs, and the side says that it is over.
#[test]
fn scribbles_of_the_other_side_do_no_harm() {
    let (mut near, end) = create::<[u8; 32], [u8; 16]>(layout()).unwrap();
    let bytes = layout().file_bytes::<[u8; 32], [u8; 16]>();
    let file = std::fs::File::from(rustix::io::dup(&end.file).unwrap());
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (random >> 33) % (bytes as u64 - 8);
        std::os::unix::fs::FileExt::write_at(&file, &random.to_ne_bytes(), at).unwrap();
        let taken = near.receiving.take(99, |_| ());
        let returned = near.sending.take_returns(99, |_| ());
        assert!(taken <= 8 && returned <= 8);
        let _ = near.sending.stage([1; 32]);
        near.sending.publish();
        near.own_bell.arm(Sleep::Fd);
        near.own_bell.disarm();
        near.far_bell.ring();
    }
    assert!(near.sending.is_over() || near.receiving.is_over());
}

/// The rings are not new after a process has used them: what it took or gave would be counted again.
#[test]
fn one_process_alone_maps_an_edge() {
    let (near, end) = create::<[u8; 32], [u8; 16]>(layout()).unwrap();
    let is_taken = || is_taken::<[u8; 32], [u8; 16]>(&end.file, layout()).unwrap();
    assert!(!is_taken() && !is_taken());
    let (_, socket) = socket_pair().unwrap();
    let far = map::<[u8; 32], [u8; 16]>(&end.file, layout(), end.socket, Which::Mapper).unwrap();
    assert!(is_taken());
    for _ in 0..2 {
        let socket = Own::keep(socket.try_clone().unwrap());
        let again = map::<[u8; 32], [u8; 16]>(&end.file, layout(), socket, Which::Mapper);
        assert!(matches!(again, Err(MapError::Taken)), "{again:?}");
    }
    assert!(!near.sending.is_over(), "the one that has it still has it");
    drop(far);
    assert!(is_taken() && near.sending.is_over());
}

#[test]
fn an_edge_between_two_others_has_two_sides_and_each_is_mapped_once() {
    let (file, [one, other]) = between::<[u8; 32], [u8; 16]>(layout()).unwrap();
    let copy = |socket: &Own| Own::open(|| Ok(fcntl_dupfd_cloexec(socket, 0)?)).unwrap();
    let spare = [copy(&one), copy(&other)];
    let mut one: Side<[u8; 32], [u8; 16]> = map(&file, layout(), one, Which::Maker).unwrap();
    let mut other: Side<[u8; 32], [u8; 16]> = map(&file, layout(), other, Which::Mapper).unwrap();
    one.sending.stage([1; 32]).unwrap();
    one.sending.publish();
    assert_eq!(other.receiving.take_one(), Some([1; 32]));
    other.sending.stage([2; 32]).unwrap();
    other.sending.publish();
    assert_eq!(one.receiving.take_one(), Some([2; 32]));
    for (ringer, sleeper) in [(&one, &other), (&other, &one)] {
        sleeper.own_bell.arm(Sleep::Fd);
        assert!(ringer.far_bell.ring() && is_readable(&sleeper.own_bell));
    }
    for (which, socket) in [Which::Maker, Which::Mapper].into_iter().zip(spare) {
        let again = map::<[u8; 32], [u8; 16]>(&file, layout(), socket, which);
        assert!(matches!(again, Err(MapError::Taken)), "{which:?}");
    }
}

#[test]
fn a_notice_is_read_at_the_other_side() {
    let (near, far) = pair();
    assert_eq!(far.notice.get(), 0);
    near.notice.set(7);
    assert_eq!(far.notice.get(), 7);
    // It outlives its side, and moves nothing else.
    let notice = near.notice.clone();
    drop(near);
    notice.set(8);
    assert_eq!(far.notice.get(), 8);
}
