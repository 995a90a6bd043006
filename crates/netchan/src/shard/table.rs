//! A table of equal things with stable numbers, bounded, its memory reserved at the start.

/// Numbers of things; a number is used again after its thing was taken out.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: usize,
    capacity: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Used(T),
    Free { next: u32 },
}

const NONE: u32 = u32::MAX;

impl<T> Table<T> {
    /// Bytes that each thing takes.
    #[cfg(test)]
    pub const SLOT: usize = size_of::<Slot<T>>();

    /// Room for `capacity` things; the memory is reserved, not touched.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            free: NONE,
            len: 0,
            capacity,
        }
    }

    /// Puts a thing in; full returns the goods.
    pub fn insert(&mut self, thing: T) -> Result<u32, T> {
        let number = if self.free == NONE {
            match u32::try_from(self.slots.len()) {
                Ok(number) if self.slots.len() < self.capacity => {
                    self.slots.push(Slot::Used(thing));
                    self.len += 1;
                    return Ok(number);
                }
                _ => return Err(thing),
            }
        } else {
            self.free
        };
        let slot = &mut self.slots[number as usize];
        if let Slot::Free { next } = slot {
            self.free = *next;
        }
        *slot = Slot::Used(thing);
        self.len += 1;
        Ok(number)
    }

    /// Puts in what `make` makes, in its place; `None`, and nothing is made: full.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<u32> {
        let number = self.free;
        let Some(slot) = self.slots.get_mut(number as usize) else {
            let number = u32::try_from(self.slots.len()).ok()?;
            if self.slots.len() >= self.capacity {
                return None;
            }
            self.slots.push(Slot::Used(make()));
            self.len += 1;
            return Some(number);
        };
        if let Slot::Free { next } = slot {
            self.free = *next;
        }
        *slot = Slot::Used(make());
        self.len += 1;
        Some(number)
    }

    /// Drops a thing in its place.
    pub fn discard(&mut self, number: u32) {
        if let Some(slot @ Slot::Used(_)) = self.slots.get_mut(number as usize) {
            *slot = Slot::Free { next: self.free };
            self.free = number;
            self.len -= 1;
        }
    }

    /// Takes a thing out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        if matches!(slot, Slot::Free { .. }) {
            return None;
        }
        match std::mem::replace(slot, Slot::Free { next: self.free }) {
            Slot::Used(thing) => {
                self.free = number;
                self.len -= 1;
                Some(thing)
            }
            Slot::Free { .. } => None,
        }
    }

    /// The thing with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.slots.get(number as usize) {
            Some(Slot::Used(thing)) => Some(thing),
            _ => None,
        }
    }

    /// The thing with this number, to change.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.slots.get_mut(number as usize) {
            Some(Slot::Used(thing)) => Some(thing),
            _ => None,
        }
    }

    /// All things with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| match slot {
                Slot::Used(thing) => Some((number, thing)),
                Slot::Free { .. } => None,
            })
    }

    /// All things, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Used(thing) => Some(thing),
            Slot::Free { .. } => None,
        })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Places that things have had at one time.
    pub const fn places(&self) -> usize {
        self.slots.len()
    }

    /// How many there can be.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_come_back() {
        let mut table = Table::with_capacity(3);
        let numbers: Vec<_> = (0..3).map(|n| table.insert_with(|| vec![n])).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
        assert_eq!(table.insert_with(|| unreachable!("it is full")), None);
        assert_eq!(table.insert(vec![9]), Err(vec![9]));
        table.discard(1);
        table.discard(1);
        assert_eq!((table.len(), table.get(1)), (2, None));
        assert_eq!(table.remove(0), Some(vec![0]));
        assert_eq!(table.remove(0), None);
        assert_eq!(table.insert_with(|| vec![4]), Some(0), "last out, first in");
        assert_eq!(table.insert(vec![5]), Ok(1));
        let all: Vec<_> = table.iter().map(|(number, v)| (number, v[0])).collect();
        assert_eq!(all, [(0, 4), (1, 5), (2, 2)]);
    }
}
