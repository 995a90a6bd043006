//! Handles: what C holds as a pointer is a number, looked up here at each call. One that was closed, or never was, is found out; memory is never
//! reached by it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crossbeam_utils::CachePadded;
use parking_lot::RwLock;

/// Parts with a lock each: threads with sockets of their own seldom meet.
const PARTS: usize = 64;
/// Places of one part.
const PLACES_MAX: usize = 1 << 24;

const KIND_BITS: u32 = 2;
const PART_BITS: u32 = PARTS.trailing_zeros();
const PLACE_SHIFT: u32 = KIND_BITS + PART_BITS;
const GENERATION_SHIFT: u32 = 32;

const _: () = assert!(
    usize::BITS == 64 && PLACE_SHIFT + PLACES_MAX.trailing_zeros() <= GENERATION_SHIFT,
    "a handle fits into a pointer"
);

/// A place, which is used again under another number.
struct Place<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

struct Part<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

/// All things of one kind that C has handles of.
pub struct Table<T> {
    kind: usize,
    next: AtomicUsize,
    parts: [CachePadded<RwLock<Part<T>>>; PARTS],
}

impl<T> Table<T> {
    /// An empty table. `kind`, 1 to 3, tells its handles from those of another one.
    pub const fn new(kind: usize) -> Self {
        assert!(kind > 0 && kind < 1 << KIND_BITS, "no handle is NULL");
        Self {
            kind,
            next: AtomicUsize::new(0),
            parts: [const {
                CachePadded::new(RwLock::new(Part {
                    places: Vec::new(),
                    free: Vec::new(),
                }))
            }; PARTS],
        }
    }

    /// Its handle: never 0. EMFILE where there are too many.
    pub fn insert(&self, value: T) -> io::Result<usize> {
        // Relaxed: any part does.
        let number = self.next.fetch_add(1, Relaxed) % PARTS;
        let mut part = self.parts[number].write();
        let at = match part.free.pop() {
            Some(at) => at,
            None if part.places.len() < PLACES_MAX => {
                part.places.push(Place {
                    generation: 1, // small numbers name nothing
                    value: None,
                });
                part.places.len() - 1
            }
            None => return Err(io::Error::from_raw_os_error(libc::EMFILE)),
        };
        let place = &mut part.places[at];
        place.value = Some(Arc::new(value));
        let generation = (place.generation as usize) << GENERATION_SHIFT;
        Ok(generation | at << PLACE_SHIFT | number << KIND_BITS | self.kind)
    }

    /// What a handle names. EBADF where it names nothing (any more).
    pub fn get(&self, handle: usize) -> io::Result<Arc<T>> {
        let (number, at, generation) = self.taken_apart(handle).ok_or_else(no_handle)?;
        let part = self.parts[number].read();
        let place = part.places.get(at).ok_or_else(no_handle)?;
        match &place.value {
            Some(value) if place.generation == generation => Ok(value.clone()),
            _ => Err(no_handle()),
        }
    }

    /// The same, and the handle names nothing from now on.
    pub fn remove(&self, handle: usize) -> io::Result<Arc<T>> {
        let (number, at, generation) = self.taken_apart(handle).ok_or_else(no_handle)?;
        let mut part = self.parts[number].write();
        let place = part.places.get_mut(at).ok_or_else(no_handle)?;
        if place.generation != generation {
            return Err(no_handle());
        }
        let value = place.value.take().ok_or_else(no_handle)?;
        place.generation = place.generation.wrapping_add(1).max(1);
        part.free.push(at);
        Ok(value)
    }

    /// Part, place and generation.
    fn taken_apart(&self, handle: usize) -> Option<(usize, usize, u32)> {
        let is_ours = handle % (1 << KIND_BITS) == self.kind;
        let generation = u32::try_from(handle >> GENERATION_SHIFT).ok()?;
        let place = (handle % (1 << GENERATION_SHIFT)) >> PLACE_SHIFT;
        is_ours.then_some((handle >> KIND_BITS & (PARTS - 1), place, generation))
    }
}

fn no_handle() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &Table<u32>, handle: usize) -> Option<u32> {
        table.get(handle).ok().map(|value| *value)
    }

    #[test]
    fn handles_name_what_they_were_given_for_and_nothing_later() {
        let table = Table::new(1);
        let handles: Vec<usize> = (0..1000)
            .map(|value| table.insert(value).unwrap())
            .collect();
        for (handle, value) in handles.iter().zip(0..) {
            assert_eq!(names(&table, *handle), Some(value));
            assert_ne!(*handle, 0);
        }
        for handle in &handles {
            assert!(table.remove(*handle).is_ok());
            assert_eq!(names(&table, *handle), None);
            assert!(table.remove(*handle).is_err());
        }
        // The same places under other numbers.
        let anew: Vec<usize> = (0..1000).map(|n| table.insert(n).unwrap()).collect();
        assert!(handles.iter().all(|old| names(&table, *old).is_none()));
        assert!(anew.iter().all(|new| names(&table, *new).is_some()));
        let places: usize = table.parts.iter().map(|p| p.read().places.len()).sum();
        assert!(places <= 1000 + PARTS, "{places}");
    }

    #[test]
    fn what_is_no_handle_is_none() {
        let table = Table::new(1);
        let other = Table::new(2);
        let handle = table.insert(7).unwrap();
        let foreign = other.insert(8).unwrap();
        for wrong in [0, 1, 2, usize::MAX, handle + 1, handle | 1 << 31, foreign] {
            assert_eq!(names(&table, wrong), None, "{wrong:x}");
        }
        assert_eq!(names(&table, handle), Some(7));
    }
}
