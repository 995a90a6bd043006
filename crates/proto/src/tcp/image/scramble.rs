//! Images with a few values changed at random, as a hostile file would have them. For tests.

use alloc::vec::Vec;

use super::Distance;
use crate::ip::Ecn;
use crate::tcp::tests::Rng;
use crate::tcp::types::{Error, State};
use crate::wire::tcp::{FastOpen, Flags, SackBlocks, SeqNum};

/// Which values change, and to what.
pub struct Scrambler {
    pub rng: Rng,
    /// One value of so many changes.
    pub one_of: u64,
    /// How many did.
    pub changed: u32,
}

impl Scrambler {
    pub fn hits(&mut self) -> bool {
        let hits = self.rng.below(self.one_of) == 0;
        self.changed += u32::from(hits);
        hits
    }

    /// Small, large, or near what was there.
    fn number(&mut self, was: u64) -> u64 {
        match self.rng.below(8) {
            0 => 0,
            1 => self.rng.below(4),
            2 => u64::MAX - self.rng.below(4),
            3 => was.wrapping_add(self.rng.below(9)).wrapping_sub(4),
            4 => 1 << self.rng.below(64),
            5 => was.wrapping_add(self.rng.below(4000)),
            6 => self.rng.below(1 << 31),
            _ => self.rng.next(),
        }
    }
}

/// What can be changed.
pub trait Scramble {
    /// Changes some of it, or nothing.
    fn scramble(&mut self, dice: &mut Scrambler);
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Scramble for $type {
            #[allow(clippy::cast_possible_truncation)] // any number will do
            fn scramble(&mut self, dice: &mut Scrambler) {
                if dice.hits() {
                    *self = dice.number(*self as u64) as $type;
                }
            }
        })*
    };
}
numbers!(u8, u16, u32, u64, i64);

/// Enumerations, by their values.
macro_rules! chosen {
    ($($type:ty: $($value:expr),*;)*) => {
        $(impl $crate::tcp::image::scramble::Scramble for $type {
            #[allow(clippy::cast_possible_truncation)] // below a length
            fn scramble(&mut self, dice: &mut $crate::tcp::image::scramble::Scrambler) {
                if dice.hits() {
                    let all = [$($value),*];
                    *self = all[dice.rng.below(all.len() as u64) as usize];
                }
            }
        })*
    };
}
pub(in crate::tcp) use chosen;

chosen! {
    bool: true, false;
    State: State::Closed, State::Listen, State::SynSent, State::SynReceived, State::Established, State::FinWait1, State::FinWait2,
        State::CloseWait, State::Closing, State::LastAck, State::TimeWait;
    Error: Error::Reset, Error::TimedOut;
    Ecn: Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce;
}

impl Scramble for SeqNum {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.0.scramble(dice);
    }
}
impl Scramble for Flags {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.0.scramble(dice);
    }
}
impl Scramble for Distance {
    fn scramble(&mut self, dice: &mut Scrambler) {
        match self {
            Self::Never | Self::Origin if dice.hits() => {
                *self = Self::Nanos(dice.rng.next().cast_signed());
            }
            Self::Never | Self::Origin => {}
            Self::Nanos(_) if dice.rng.below(4) == 0 && dice.hits() => *self = Self::Never,
            Self::Nanos(nanos) => nanos.scramble(dice),
        }
    }
}
impl Scramble for SackBlocks {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.blocks.scramble(dice);
        self.len.scramble(dice);
    }
}
impl Scramble for FastOpen {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.experimental.scramble(dice);
    }
}

impl<T: Scramble> Scramble for Option<T> {
    fn scramble(&mut self, dice: &mut Scrambler) {
        match self {
            Some(_) if dice.rng.below(4) == 0 && dice.hits() => *self = None,
            Some(value) => value.scramble(dice),
            None => {}
        }
    }
}
impl<T: Scramble + Clone> Scramble for Vec<T> {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.iter_mut().for_each(|value| value.scramble(dice));
        if !self.is_empty() && dice.hits() {
            let at = dice.rng.below(self.len() as u64) as usize;
            let other = dice.rng.below(self.len() as u64) as usize;
            match dice.rng.below(3) {
                0 => drop(self.remove(at)),
                1 => self.insert(at, self[other].clone()),
                _ => self.swap(at, other),
            }
        }
    }
}
impl<T: Scramble, const N: usize> Scramble for [T; N] {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.iter_mut().for_each(|value| value.scramble(dice));
    }
}
impl<A: Scramble, B: Scramble> Scramble for (A, B) {
    fn scramble(&mut self, dice: &mut Scrambler) {
        self.0.scramble(dice);
        self.1.scramble(dice);
    }
}
