//! Pipes between two views of one file, as two processes have them.

use super::{End, Heard, LABEL, Label, Look, Pipes, PipesLayout};
use crate::{edge::Which, region::MapError};
use std::{sync::Arc, thread};

const BYTES: usize = 4096;

fn pair(slots: u32) -> [Arc<Pipes>; 2] {
    let layout = PipesLayout::new(slots, 4096).unwrap();
    let file = Pipes::between(layout).unwrap();
    [Which::Maker, Which::Mapper].map(|side| Arc::new(Pipes::map(&file, layout, side).unwrap()))
}

fn label(n: u8) -> Label {
    [n; LABEL]
}

/// Both ends of a stream that `one` offers.
fn stream(one: &Arc<Pipes>, other: &Arc<Pipes>, n: u8) -> (End, End) {
    let ours = one.offer(&label(n)).expect("a slot");
    let slot = ours.slot();
    let (generation, said) = other.offered(slot).expect("an offer");
    assert_eq!(said, label(n));
    let theirs = other.accept(slot, generation).expect("it is still there");
    (ours, theirs)
}

fn send(end: &mut End, text: &[u8]) -> usize {
    let n = end.write(text);
    end.publish();
    end.pipes().post(Some(end.slot()));
    n
}

fn receive(end: &mut End, most: usize) -> Vec<u8> {
    let mut text = vec![0; most];
    let n = end.copy(0, &mut text);
    end.take(n);
    text.truncate(n);
    text
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    for (slots, bytes) in [
        (0, 4096),
        (3, 4096),
        (2048, 4096),
        (2, 2048),
        (2, 5000),
        (2, 1 << 23),
    ] {
        assert_eq!(PipesLayout::new(slots, bytes), None, "{slots} {bytes}");
    }
}

#[test]
fn a_side_is_mapped_once() {
    let layout = PipesLayout::new(2, 4096).unwrap();
    let file = Pipes::between(layout).unwrap();
    let _one = Pipes::map(&file, layout, Which::Maker).unwrap();
    let again = Pipes::map(&file, layout, Which::Maker);
    assert!(matches!(again, Err(MapError::Taken)), "{again:?}");
    let other = PipesLayout::new(4, 4096).unwrap();
    let wrong = Pipes::map(&file, other, Which::Mapper);
    assert!(matches!(wrong, Err(MapError::Size { .. })), "{wrong:?}");
}

#[test]
fn text_goes_both_ways_round_the_ring() {
    let [one, other] = pair(2);
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    assert!(ours.is_met() && theirs.is_met());
    let text: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < text.len() {
        sent += send(&mut ours, &text[sent..text.len().min(sent + 3000)]);
        got.extend(receive(&mut theirs, 1777));
    }
    assert_eq!(got, text);
    assert_eq!(send(&mut theirs, b"back"), 4);
    assert_eq!(receive(&mut ours, 100), b"back");
}

#[test]
fn a_copy_leaves_the_text_and_begins_where_it_is_told() {
    let [one, other] = pair(2);
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    // Behind the ring's end, too.
    send(&mut ours, &[0; BYTES - 3]);
    receive(&mut theirs, BYTES);
    send(&mut ours, b"0123456789");
    let mut some = [0; 4];
    assert_eq!(theirs.copy(5, &mut some), 4);
    assert_eq!(&some, b"5678");
    assert_eq!(theirs.copy(8, &mut some), 2);
    assert_eq!(theirs.copy(10, &mut some), 0);
    assert_eq!(receive(&mut theirs, 100), b"0123456789");
}

#[test]
fn a_full_ring_takes_no_more_and_its_reader_is_asked() {
    let [one, other] = pair(2);
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    assert_eq!(send(&mut ours, &[1; BYTES + 7]), BYTES);
    assert_eq!((ours.room(), ours.unread()), (0, BYTES));
    assert_eq!(theirs.readable(), BYTES);
    assert!(!theirs.take(1), "nothing was asked");
    assert_eq!(ours.ask_for_room(), 1);
    assert!(theirs.take(1), "the writer waits");
    assert_eq!(ours.write(b"xyz"), 2);
    ours.publish();
    assert!(!theirs.take(1), "it waits no more");
}

#[test]
fn the_last_posts_tell_what_they_were_about() {
    let [one, other] = pair(4);
    let before = other.posts();
    let about = [Some(3), Some(0), None, Some(2)];
    about.iter().for_each(|&slot| one.post(slot));
    let told = |n: u32| other.posted(before + n);
    assert_eq!([1, 2, 3, 4].map(told), about);
    assert_eq!(told(5), None, "it is yet to come");
    (0..16).for_each(|_| one.post(Some(1)));
    assert_eq!([4, 5, 20, 21].map(told), [None, Some(1), Some(1), None]);
    assert_eq!(one.posted(1), None, "the other side has said nothing");
    // Of a slot that is not there.
    one.post(Some(4));
    assert_eq!(told(21), None);
}

#[test]
fn posts_and_offers_are_counted_for_the_other_side() {
    let [one, other] = pair(2);
    let (posts, offers) = (other.posts(), other.offers());
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    assert_ne!(other.offers(), offers);
    let slot = ours.slot();
    let seen = other.look(slot, &Look::default()).expect("an offer");
    assert_eq!(other.look(slot, &seen), None);
    send(&mut ours, b"x");
    assert_ne!(other.posts(), posts);
    let now = other.look(slot, &seen).expect("text");
    assert_eq!(other.look(slot, &now), None, "it was seen");
    let before = one.look(slot, &Look::default()).unwrap();
    receive(&mut theirs, 1);
    assert_eq!(other.look(slot, &seen), None, "it was read");
    assert_eq!(one.look(slot, &before), None, "nothing waits for room");
    send(&mut ours, &[0; BYTES]);
    ours.ask_for_room();
    receive(&mut theirs, 1);
    let now = one.look(slot, &before).expect("room");
    theirs.finish();
    assert!(one.look(slot, &now).is_some());
    assert_eq!(other.look(99, &Look::default()), None, "no such slot");
}

/// Text that is read as it comes stays at the ring's beginning, and is what was sent.
#[test]
fn a_ring_that_is_empty_begins_anew() {
    let layout = PipesLayout::new(2, 1 << 16).unwrap();
    let file = Pipes::between(layout).unwrap();
    let map = |side| Arc::new(Pipes::map(&file, layout, side).unwrap());
    let (one, other) = (map(Which::Maker), map(Which::Mapper));
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    for round in 0..200_u8 {
        // Now and then more than fits without going round, and something is left.
        let len: u32 = if round.is_multiple_of(7) {
            60_000
        } else {
            1000
        };
        let text: Vec<u8> = (0..len)
            .map(|n: u32| round.wrapping_add(n.to_le_bytes()[0]))
            .collect();
        assert_eq!(send(&mut ours, &text), text.len());
        if round.is_multiple_of(5) {
            assert_eq!(send(&mut ours, b"more"), 4);
        }
        assert_eq!(
            theirs.readable(),
            text.len() + if round.is_multiple_of(5) { 4 } else { 0 }
        );
        assert_eq!(receive(&mut theirs, text.len()), text);
        let left = if round.is_multiple_of(5) { "more" } else { "" };
        assert_eq!(receive(&mut theirs, 9), left.as_bytes());
        assert_eq!((ours.room(), ours.unread()), (1 << 16, 0), "{round}");
    }
}

#[test]
fn where_text_begins_and_that_it_ends_is_told() {
    let [one, other] = pair(2);
    let (mut ours, theirs) = stream(&one, &other, 1);
    assert_eq!(
        (theirs.heard().start, theirs.heard().is_finished),
        (None, false)
    );
    ours.begin(77);
    assert_eq!(
        (theirs.heard().start, theirs.heard().is_finished),
        (Some(77), false)
    );
    ours.finish();
    assert_eq!(
        (theirs.heard().start, theirs.heard().is_finished),
        (Some(77), true)
    );
    one.hold(true);
    assert!(other.is_held() && !one.is_held());
    one.hold(false);
    assert!(!other.is_held());
}

#[test]
fn each_side_offers_in_its_own_slots_until_they_are_used_up() {
    let [one, other] = pair(4);
    let ends: Vec<_> = (0..2).map(|n| stream(&one, &other, n)).collect();
    assert!(one.offer(&label(9)).is_none());
    let (back, forth) = stream(&other, &one, 3);
    assert!(back.slot() >= 2 && forth.slot() == back.slot());
    assert_eq!(other.accept(3, 1).map(|end| end.slot()), None, "its own");
    assert_eq!(other.accept(99, 1).map(|end| end.slot()), None);
    drop(ends);
    assert!(one.offer(&label(9)).is_some());
}

#[test]
fn a_slot_comes_back_when_both_have_let_go_and_is_new_then() {
    let [one, other] = pair(2);
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    send(&mut ours, b"left");
    theirs.begin(5);
    assert!(!theirs.heard().is_finished);
    drop(ours);
    assert!(one.offer(&label(2)).is_none(), "the other side has an end");
    assert!(!theirs.is_met() && theirs.heard().is_finished);
    assert_eq!(receive(&mut theirs, 10), b"left", "it can still be read");
    drop(theirs);
    let (mut ours, mut theirs) = stream(&one, &other, 2);
    assert_eq!((ours.readable(), theirs.readable()), (0, 0));
    assert_eq!((ours.heard().start, theirs.heard().start), (None, None));
    assert_eq!(send(&mut ours, &[7; BYTES]), BYTES);
    assert_eq!(receive(&mut theirs, BYTES), [7; BYTES]);
}

#[test]
fn an_offer_that_was_withdrawn_is_not_accepted() {
    let [one, other] = pair(2);
    let ours = one.offer(&label(1)).unwrap();
    let (generation, _) = other.offered(ours.slot()).unwrap();
    drop(ours);
    assert!(other.offered(0).is_none());
    assert!(other.accept(0, generation).is_none());
    let again = one.offer(&label(2)).expect("nothing holds the slot");
    assert!(!again.is_met() && again.heard() == Heard::default());
    assert!(other.accept(0, generation).is_none(), "of before");
    assert!(other.offered(0).is_some());
}

/// The side that accepted is through before the other one has read: what it sent is not cleared for a second end of the same stream.
#[test]
fn a_stream_is_accepted_once() {
    let [one, other] = pair(2);
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    let (slot, generation) = (ours.slot(), 1);
    theirs.begin(7);
    send(&mut theirs, b"all of it");
    drop(theirs);
    assert_eq!(other.offered(slot), None);
    assert!(other.accept(slot, generation).is_none());
    let heard = Heard {
        start: Some(7),
        is_finished: true,
    };
    assert_eq!(ours.heard(), heard);
    assert_eq!(receive(&mut ours, 100), b"all of it");
}

/// Two threads, as hard as they can: pieces of at most `piece` bytes through rings of `bytes`.
fn between_threads(bytes: u32, piece: usize, total: usize) {
    let layout = PipesLayout::new(2, bytes).unwrap();
    let file = Pipes::between(layout).unwrap();
    let map = |side| Arc::new(Pipes::map(&file, layout, side).unwrap());
    let (one, other) = (map(Which::Maker), map(Which::Mapper));
    let (mut ours, mut theirs) = stream(&one, &other, 1);
    let pattern = |at: usize| (at.wrapping_mul(31) >> 3).to_le_bytes()[0];
    let writer = thread::spawn(move || {
        let mut at = 0;
        while at < total {
            let n = (at % piece + 1).min(total - at);
            let text: Vec<u8> = (at..at + n).map(pattern).collect();
            at += send(&mut ours, &text);
            assert!(!ours.is_corrupt(), "at {at}");
            if ours.room() == 0 {
                ours.ask_for_room();
                thread::yield_now();
            }
        }
        ours
    });
    let mut at = 0;
    while at < total {
        let text = receive(&mut theirs, piece);
        assert!(!theirs.is_corrupt(), "at {at}");
        assert!(
            text.iter()
                .enumerate()
                .all(|(n, &byte)| byte == pattern(at + n))
        );
        at += text.len();
        if text.is_empty() {
            thread::yield_now();
        }
    }
    drop(writer.join().unwrap());
}

#[test]
fn text_between_threads_is_what_was_sent() {
    between_threads(4096, 2999, 4_000_000);
    // Rings that begin anew, and are filled, too.
    between_threads(1 << 15, 1 << 14, 20_000_000);
    between_threads(1 << 19, 1 << 18, 40_000_000);
}

/// A side that writes what it likes into all of the memory.
#[test]
fn nonsense_in_the_memory_does_no_harm() {
    let layout = PipesLayout::new(2, 4096).unwrap();
    let file = Pipes::between(layout).unwrap();
    let one = Arc::new(Pipes::map(&file, layout, Which::Maker).unwrap());
    let hostile = Pipes::map(&file, layout, Which::Mapper).unwrap();
    let mut seed = 1_u64;
    for _ in 0..2000 {
        let mut end = one.offer(&label(1));
        for _ in 0..20 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let places = layout.file_bytes() / 8;
            let place = usize::try_from(seed >> 33).unwrap() % places;
            let place = if seed.is_multiple_of(3) {
                place % 400
            } else {
                place
            };
            (hostile.word64(place * 8))
                .store(seed.rotate_left(17), std::sync::atomic::Ordering::Relaxed);
            let Some(end) = &mut end else { continue };
            let (readable, room) = (end.readable(), end.room());
            assert!(readable <= BYTES && room <= BYTES);
            assert!(receive(end, 9000).len() <= BYTES);
            assert!(send(end, &[1; 100]) <= 100);
            end.ask_for_room();
            let _ = (end.is_met(), end.heard());
        }
        for slot in 0..3 {
            let accepted = one
                .offered(slot)
                .and_then(|(generation, _)| one.accept(slot, generation));
            drop(accepted);
        }
        (0..SLOT_WORDS).for_each(|n| {
            hostile
                .word64(640 + n * 8)
                .store(0, std::sync::atomic::Ordering::Relaxed)
        });
    }
}

/// Words of the slots' lines.
const SLOT_WORDS: usize = 2 * 2 * 128 / 8;
