//! The queues under loom: what threads free comes home once, from claimed queues, queues that change hands and the overflow list.

use super::remote_free::{QUEUES, ReadUpTo, RemoteFrees};
use crate::sync::{Arc, AtomicU32, Cell};
use loom::thread;
use std::ptr::NonNull;

/// A slab without its memory: queues for two buffers, and the bytes of the buffers as loom's cells, which notice races.
struct Model {
    remote_frees: RemoteFrees,
    bytes: [Cell<u32>; 2],
    slots: NonNull<[AtomicU32]>,
}

// SAFETY: queues are made to be shared; a cell is used by the holder of its buffer only, which is what the models check.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    fn new() -> Arc<Self> {
        let slots = QUEUES * RemoteFrees::slots_each(2) as usize;
        let slots: Box<[AtomicU32]> = (0..slots).map(|_| AtomicU32::new(0)).collect();
        let slots = NonNull::from(Box::leak(slots));
        // SAFETY: as many as asked for; freed when the model is dropped.
        let remote_frees = unsafe { RemoteFrees::new(2, slots.cast()) };
        Arc::new(Self {
            remote_frees,
            bytes: [Cell::new(0), Cell::new(0)],
            slots,
        })
    }

    /// The owner of a buffer writes to it.
    fn write(&self, buffer: u32) {
        self.bytes[buffer as usize].with_mut(|byte| {
            // SAFETY: the caller owns the buffer; loom panics if not.
            let byte = unsafe { &mut *byte };
            *byte += 1;
        });
    }

    /// What `Buffer::drop` does, and a thread that ends after it.
    fn free(&self, buffer: u32) {
        self.write(buffer);
        match self.remote_frees.claim() {
            Some((number, queue)) => {
                queue.push(buffer);
                self.remote_frees.release(number);
            }
            None => self.remote_frees.push_overflow(buffer),
        }
    }

    fn collect(&self, read: &mut ReadUpTo) -> Vec<u32> {
        let mut home = Vec::new();
        self.remote_frees.collect(read, |buffer| home.push(buffer));
        home
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; no thread is left that could push.
        drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
    }
}

/// Two threads free one buffer each: one queue for both, in turn, or the overflow list for one of them.
#[test]
fn two_threads_free_and_the_holder_takes_and_reuses() {
    loom::model(|| {
        let model = Model::new();
        let threads: Vec<_> = (0..2)
            .map(|buffer| {
                let model = model.clone();
                thread::spawn(move || model.free(buffer))
            })
            .collect();
        let mut read = ReadUpTo::START;
        let mut home = model.collect(&mut read);
        home.iter().for_each(|&buffer| model.write(buffer)); // ours again: no race with the freeing thread
        threads.into_iter().for_each(|t| t.join().unwrap());
        home.extend(model.collect(&mut read));
        home.sort_unstable();
        assert_eq!(home, [0, 1], "each once, none lost");
        assert!(model.collect(&mut read).is_empty());
    });
}

/// Two buffers go round and round through one queue of two slots: a slot is written again only after it was read.
#[test]
fn buffers_go_round_in_one_lane() {
    loom::model(|| {
        let model = Model::new();
        let (mut to, mut from) = crate::ring::ring::<u32>(2);
        let other = {
            let model = model.clone();
            thread::spawn(move || {
                let (number, queue) = model.remote_frees.claim().expect("the only claim");
                let mut freed = 0;
                while freed < 3 {
                    if let Some(buffer) = from.pop() {
                        model.write(buffer);
                        queue.push(buffer);
                        freed += 1;
                    } else {
                        thread::yield_now();
                    }
                }
                model.remote_frees.release(number);
            })
        };
        let mut read = ReadUpTo::START;
        let mut home = vec![0, 1];
        let mut sent = 0;
        while sent < 3 {
            if let Some(buffer) = home.pop() {
                model.write(buffer);
                assert!(to.push(buffer).is_ok());
                sent += 1;
            } else {
                home.extend(model.collect(&mut read));
                thread::yield_now();
            }
        }
        other.join().unwrap();
        home.extend(model.collect(&mut read));
        home.sort_unstable();
        assert_eq!(home, [0, 1]);
    });
}
