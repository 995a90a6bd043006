//! A connection as plain data: taken apart by [`super::Connection::take_apart`] into a [`super::ConnectionImage`], put together again by
//! [`super::Connection::from_image`]; its text by [`super::ReceiveQueue::take_apart`] and [`super::Connection::queue_from_image`].
//!
//! Each part of a connection has its image beside its own type, made by [`imaged`] or, where the type is plain data already, by [`plain`]. Both
//! name every field in both directions: a new field does not compile before its place in the image was decided.
//!
//! **Times** are distances from the moment at which the image was taken ([`Distance`], or a count of the unit in which the field is kept). At the
//! same moment taking apart and putting together lose nothing. At another one, of the same clock or of another process's, the connection goes on
//! as if no time had passed; an owner that wants the time to count puts it together at `now` less that time. The timestamps that the peer sees
//! (RFC 7323) go on from where they were. What is further in the past than the new clock's origin counts as that old, and fields kept in units of
//! 1 ms, 65.5 µs or 1.07 s may round to another of these.
//!
//! **Not in the image**, as a connection does not have them: addresses, readiness and waiting threads (the socket's, of one process), statistics
//! of the shard, capacity of lists and free memory (made anew), the keys and counters of signatures (RFC 2385, RFC 5925: secrets, which the owner
//! has; of them the connection knows the room that they take in a header), and the send queue's bytes, which are the owner's: they are one
//! stretch, [`super::ConnectionImage::queued_bytes`] long, from SND.UNA on.
//!
//! **An image may come from a hostile file.** Putting together checks what the code relies on ([`ImageError`]), and never panics; a connection made
//! of a false image may say false things to its peer, as any program with a raw socket may.

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // random numbers of tests
pub(in crate::tcp) mod scramble;

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use crate::time::Instant;
use crate::wire::tcp::SeqNum;

/// Why no connection can be made of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// No connection is in this state (LISTEN), or not with what else the image says.
    State,
    /// Sequence numbers that do not follow each other: SND.UNA, SND.NXT and the end of what is queued; RCV.NXT and the window's edge.
    Sequence,
    /// A window, a segment size or a setting outside of its bounds.
    Bounds,
    /// Records of what was sent that do not fit together, or with the sequence numbers.
    Records,
    /// Congestion control with impossible figures.
    Congestion,
    /// A counter so high that it could overflow.
    Counters,
    /// Received text that is not what the connection says, overlaps, or is out of order.
    Text,
    /// No room in the pool for the text.
    Memory,
}

/// A moment, seen from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Distance {
    /// [`Instant::FAR`].
    Never,
    /// [`Instant::ZERO`], which fields have that were never set: it is that of any clock.
    Origin,
    /// Nanoseconds; negative ones lie in the past.
    Nanos(i64),
}

/// What has a place in an image.
pub(in crate::tcp) trait Imaged: Sized {
    /// Its plain form.
    type Image;
    /// Taken apart at `now`.
    fn image(&self, now: Instant) -> Self::Image;
    /// Put together at `now`. Any image gives a value; whether it makes sense, [`super::Connection::from_image`] asks.
    fn from_image(image: Self::Image, now: Instant) -> Self;
}

/// An image and both ways to it, from a list of all fields of a part: `name: type of the image's field`, `as` one of the modules below (how it
/// becomes that; `same` if it does not say).
macro_rules! imaged {
    (@take $field:ident $now:ident) => { $crate::tcp::image::same::image($field, $now) };
    (@take $field:ident $now:ident $how:ident) => { $crate::tcp::image::$how::image($field, $now) };
    (@put $field:ident $now:ident) => { $crate::tcp::image::same::value($field, $now) };
    (@put $field:ident $now:ident $how:ident) => { $crate::tcp::image::$how::value($field, $now) };
    ($(#[$doc:meta])* $vis:vis struct $image:ident of $part:ident { $($field:ident: $type:ty $(as $how:ident)?),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $image {
            $($field: $type,)*
        }

        impl $crate::tcp::image::Imaged for $part {
            type Image = $image;
            fn image(&self, now: $crate::time::Instant) -> $image {
                let Self { $($field),* } = self;
                $image { $($field: $crate::tcp::image::imaged!(@take $field now $($how)?),)* }
            }
            fn from_image(image: $image, now: $crate::time::Instant) -> Self {
                let $image { $($field),* } = image;
                Self { $($field: $crate::tcp::image::imaged!(@put $field now $($how)?),)* }
            }
        }

        #[cfg(test)]
        impl $crate::tcp::image::scramble::Scramble for $image {
            fn scramble(&mut self, dice: &mut $crate::tcp::image::scramble::Scrambler) {
                let Self { $($field),* } = self;
                $($crate::tcp::image::scramble::Scramble::scramble($field, dice);)*
            }
        }
    };
}

/// A part without times and pointers is its own image; all its fields are named here.
macro_rules! plain {
    ($part:ident { $($field:ident),* $(,)? }) => {
        impl $crate::tcp::image::Imaged for $part {
            type Image = Self;
            fn image(&self, _now: $crate::time::Instant) -> Self {
                let Self { $($field),* } = self;
                Self { $($field: $field.clone()),* }
            }
            fn from_image(image: Self, _now: $crate::time::Instant) -> Self {
                let Self { $($field),* } = image;
                Self { $($field),* }
            }
        }

        #[cfg(test)]
        impl $crate::tcp::image::scramble::Scramble for $part {
            fn scramble(&mut self, dice: &mut $crate::tcp::image::scramble::Scrambler) {
                let Self { $($field),* } = self;
                $($crate::tcp::image::scramble::Scramble::scramble($field, dice);)*
            }
        }
    };
}

pub(in crate::tcp) use {imaged, plain};

/// A field that is its own image.
pub(in crate::tcp) mod same {
    use super::Instant;

    pub fn image<T: Copy>(value: &T, _now: Instant) -> T {
        *value
    }
    pub fn value<T>(image: T, _now: Instant) -> T {
        image
    }
}

/// A part with an image of its own.
pub(in crate::tcp) mod part {
    use super::{Imaged, Instant};

    pub fn image<T: Imaged>(value: &T, now: Instant) -> T::Image {
        value.image(now)
    }
    pub fn value<T: Imaged>(image: T::Image, now: Instant) -> T {
        T::from_image(image, now)
    }
}

/// A list of what is its own image.
pub(in crate::tcp) mod list {
    use super::{Instant, Vec, VecDeque};

    pub fn image<T: Copy>(value: &VecDeque<T>, _now: Instant) -> Vec<T> {
        value.iter().copied().collect()
    }
    pub fn value<T>(image: Vec<T>, _now: Instant) -> VecDeque<T> {
        image.into()
    }
}

/// A time by [`Instant::low_micros`]: its age.
pub(in crate::tcp) mod micros {
    use super::Instant;

    pub fn image(value: &u32, now: Instant) -> u32 {
        now.low_micros().wrapping_sub(*value)
    }
    pub fn value(image: u32, now: Instant) -> u32 {
        now.low_micros().wrapping_sub(image)
    }
}

/// Places with a time in microseconds each.
pub(in crate::tcp) mod micros_list {
    use super::{Instant, SeqNum, Vec, VecDeque, micros};

    pub fn image(value: &VecDeque<(SeqNum, u32)>, now: Instant) -> Vec<(SeqNum, u32)> {
        let aged = |(seq, at): &(SeqNum, u32)| (*seq, micros::image(at, now));
        value.iter().map(aged).collect()
    }
    pub fn value(image: Vec<(SeqNum, u32)>, now: Instant) -> VecDeque<(SeqNum, u32)> {
        let timed = |(seq, age)| (seq, micros::value(age, now));
        image.into_iter().map(timed).collect()
    }
}

/// A past time by [`Instant::coarse`]: its age.
pub(in crate::tcp) mod coarse {
    use super::Instant;

    pub fn image(value: &u32, now: Instant) -> u32 {
        now.coarse().wrapping_sub(*value)
    }
    pub fn value(image: u32, now: Instant) -> u32 {
        now.coarse().wrapping_sub(image)
    }
}

/// A time to come by [`Instant::coarse`], or `u32::MAX` for none: how far it lies ahead.
pub(in crate::tcp) mod coarse_due {
    use super::Instant;

    pub fn image(value: &u32, now: Instant) -> Option<i64> {
        (*value < u32::MAX).then(|| i64::from(*value) - i64::from(now.coarse()))
    }
    pub fn value(image: Option<i64>, now: Instant) -> u32 {
        let at = |ahead: i64| i64::from(now.coarse()).saturating_add(ahead).max(0);
        image.map_or(u32::MAX, |ahead| {
            u32::try_from(at(ahead)).unwrap_or(u32::MAX)
        })
    }
}

/// A time by [`Instant::low_ticks`]: its age.
pub(in crate::tcp) mod ticks {
    use super::Instant;

    pub fn image(value: &u32, now: Instant) -> u32 {
        now.low_ticks().wrapping_sub(*value)
    }
    pub fn value(image: u32, now: Instant) -> u32 {
        now.low_ticks().wrapping_sub(image)
    }
}

/// What is added to the clock to make a timestamp: the timestamp of this moment (RFC 7323 §3: the peer's PAWS and our echoes live on).
pub(in crate::tcp) mod stamp {
    use super::Instant;

    pub fn image(value: &u32, now: Instant) -> u32 {
        now.low_millis().wrapping_add(*value)
    }
    pub fn value(image: u32, now: Instant) -> u32 {
        image.wrapping_sub(now.low_millis())
    }
}

impl Imaged for Instant {
    type Image = Distance;
    fn image(&self, now: Instant) -> Distance {
        match *self {
            Self::FAR => return Distance::Never,
            Self::ZERO => return Distance::Origin,
            _ => {}
        }
        let nanos = i128::from(self.0) - i128::from(now.0);
        Distance::Nanos(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }
    fn from_image(image: Distance, now: Instant) -> Self {
        match image {
            Distance::Never => Self::FAR,
            Distance::Origin => Self::ZERO,
            Distance::Nanos(nanos) => Self(now.0.saturating_add_signed(nanos)),
        }
    }
}

impl<T: Imaged> Imaged for Option<T> {
    type Image = Option<T::Image>;
    fn image(&self, now: Instant) -> Self::Image {
        self.as_ref().map(|value| value.image(now))
    }
    fn from_image(image: Self::Image, now: Instant) -> Self {
        image.map(|image| T::from_image(image, now))
    }
}

impl<T: Imaged> Imaged for Box<T> {
    type Image = T::Image;
    fn image(&self, now: Instant) -> T::Image {
        (**self).image(now)
    }
    fn from_image(image: T::Image, now: Instant) -> Self {
        Self::new(T::from_image(image, now))
    }
}

impl<T: Imaged> Imaged for VecDeque<T> {
    type Image = Vec<T::Image>;
    fn image(&self, now: Instant) -> Self::Image {
        self.iter().map(|value| value.image(now)).collect()
    }
    fn from_image(image: Self::Image, now: Instant) -> Self {
        let values = image.into_iter().map(|image| T::from_image(image, now));
        values.collect()
    }
}
