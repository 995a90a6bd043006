//! Leases of a send queue: whatever was written, committed, appended and acknowledged in between, what comes out is what went in.

use std::collections::VecDeque;

use proto::ip::keyed::{Random, Seed};

use super::*;

fn text_of(queue: &SendQueue) -> Vec<u8> {
    let mut text = vec![0; queue.len()];
    queue.copy_out_unsummed(0, &mut text).unwrap();
    text
}

/// Numbers in order, so that nothing is like anything else.
fn fill(lease: &mut SendLease, from: usize) {
    let bytes = (from..).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]);
    let mut bytes = bytes.take(lease.len());
    for slice in lease.slices_mut() {
        slice
            .iter_mut()
            .for_each(|byte| *byte = bytes.next().unwrap());
    }
    assert!(bytes.next().is_none(), "the slices make up its length");
}

/// Nothing is copied where it begins at a chunk's beginning: the chunk written to is the one that is sent from.
#[test]
fn chunks_become_the_queues_own() {
    let mut memory = SendMemory::new(4096, 4).unwrap();
    let mut queue = SendQueue::default();
    for round in 0..3 {
        let mut lease = queue.lease(&mut memory, 8192);
        fill(&mut lease, round);
        let places: Vec<_> = lease.slices_mut().map(|slice| slice.as_ptr()).collect();
        assert_eq!(places.len(), 2);
        assert_eq!(queue.commit(lease, &mut memory, 8192), 8192);
        let count = queue.chunks.count();
        let own = [count - 2, count - 1].map(|number| queue.chunks.get(number).unwrap().as_ptr());
        assert_eq!(places, own);
    }
    queue.advance(3 * 8192, &mut memory);
    assert_eq!(memory.slab.available(), 4);
}

/// A short header first: it alone is copied.
#[test]
fn what_stands_before_moves_if_it_is_less() {
    let mut memory = SendMemory::new(4096, 4).unwrap();
    let mut queue = SendQueue::default();
    queue.append(&[IoSlice::new(b"header")], &mut memory, usize::MAX);
    let mut lease = queue.lease(&mut memory, 4000);
    fill(&mut lease, 0);
    let place = lease.slices_mut().next().unwrap().as_ptr();
    queue.commit(lease, &mut memory, 4000);
    assert_eq!(queue.chunks.first()[6..].as_ptr(), place);
    assert_eq!((&text_of(&queue)[..6], queue.len()), (&b"header"[..], 4006));
    // Little behind much: what was written is copied.
    let mut lease = queue.lease(&mut memory, 50);
    assert_eq!(lease.write(0, b"tr"), 2);
    assert_eq!(lease.write(2, &[b'x'; 100]), 48);
    queue.commit(lease, &mut memory, 50);
    assert_eq!(queue.chunks.first()[6..].as_ptr(), place);
    assert_eq!(&text_of(&queue)[4006..4010], b"trxx");
    assert_eq!(memory.slab.available(), 3, "one in use");
}

#[test]
fn nothing_committed_leaves_nothing() {
    let mut memory = SendMemory::new(4096, 4).unwrap();
    let mut queue = SendQueue::default();
    let lease = queue.lease(&mut memory, 100_000);
    assert_eq!((lease.len(), lease.is_empty()), (MOST * 4096, false));
    drop(lease);
    assert_eq!(memory.slab.available(), 4);
    let lease = queue.lease(&mut memory, 100_000);
    assert_eq!(queue.commit(lease, &mut memory, 0), 0);
    assert_eq!((memory.slab.available(), queue.len()), (4, 0));
    assert!(queue.lease(&mut memory, 0).is_empty());
}

/// From another stack, whose chunks have another size: copied.
#[test]
fn foreign_chunks_are_copied() {
    for (own, foreign) in [(1024, 4096), (4096, 1024)] {
        let mut memory = SendMemory::new(own, 4).unwrap();
        let mut others = SendMemory::new(foreign, 1).unwrap();
        let mut queue = SendQueue::default();
        let mut lease = SendQueue::default().lease(&mut others, 3000);
        fill(&mut lease, 5);
        let n = queue.commit(lease, &mut memory, 3000);
        assert_eq!(n, 3000);
        let mut again = queue.lease(&mut memory, 3000);
        fill(&mut again, 5);
        let n = queue.commit(again, &mut memory, 3000);
        let text = text_of(&queue);
        assert_eq!((n, &text[..3000]), (3000, &text[3000..]));
        assert_eq!(others.slab.available(), 1);
    }
}

/// Random writes, leases that are committed later, in part or not at all, and acknowledgments, against a model.
#[test]
fn what_went_in_comes_out() {
    let seed = std::env::var("NETCHAN_SEED").ok();
    let seed = seed.map_or(11, |seed| seed.parse().expect("NETCHAN_SEED is a number"));
    println!("NETCHAN_SEED={seed}");
    let mut random = Random::new(Seed([seed, 2]));
    let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
    for (size, buffers) in [(256, 3), (256, 0), (1 << 16, 1), (1024, 100)] {
        let mut memory = SendMemory::new(size, buffers).unwrap();
        let (mut queue, mut model) = (SendQueue::default(), VecDeque::<u8>::new());
        let mut kept: VecDeque<SendLease> = VecDeque::new();
        for round in 0..3000 {
            if below(3) == 0 {
                let text: Vec<u8> = (0..below(700))
                    .map(|n| (n ^ round).to_le_bytes()[0])
                    .collect();
                queue.append(&[IoSlice::new(&text)], &mut memory, usize::MAX);
                model.extend(&text);
            }
            if below(2) == 0 {
                let wanted = below(4 * memory.chunk.min(700));
                let mut lease = queue.lease(&mut memory, wanted);
                fill(&mut lease, round * 7);
                kept.push_back(lease);
            }
            if kept.len() > below(4)
                && let Some(mut lease) = kept.pop_front()
            {
                let n = below(lease.len() + 1);
                let text = lease.slices_mut().flat_map(|slice| slice.iter().copied());
                model.extend(text.take(n));
                assert_eq!(queue.commit(lease, &mut memory, n), n);
            }
            let n = below(900).min(queue.len());
            if below(2) == 0 || queue.len() > 8000 {
                queue.advance(n, &mut memory);
                model.drain(..n);
            }
            assert_eq!(queue.len(), model.len(), "{round}");
            let offset = below(queue.len() + 1);
            let mut part = vec![0; below(queue.len() - offset + 1)];
            queue.copy_out_unsummed(offset, &mut part).unwrap();
            let expected = model.range(offset..offset + part.len());
            assert!(expected.eq(&part), "{size}, {buffers}: {round}");
            let chunks = (0..).map_while(|number| queue.chunks.get(number));
            let count = chunks.clone().count();
            let is_whole = |chunk: &[u8]| chunk.len() == memory.chunk;
            assert!(count == 1 || chunks.clone().all(is_whole), "{round}");
            let first = queue.chunks.first().len().max(1);
            assert_eq!(
                count,
                (queue.head as usize * usize::from(count > 0) + queue.len()).div_ceil(first)
            );
        }
        queue.advance(usize::MAX, &mut memory);
        kept.clear();
        assert_eq!(memory.slab.available(), memory.slab.capacity());
    }
}
