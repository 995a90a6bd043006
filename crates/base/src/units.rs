//! Numbers with units, as people write them: `16 MiB`, `10ms`, `100mbit`, `1%`, `on`.
//!
//! Each function returns the value or a sentence that says what was wrong and what is allowed; the caller knows the key.

use std::{fmt, time::Duration};

/// Splits `text` into its number and its unit; underscores may group digits.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "");
    // The character test above lets no sign, exponent, "inf" or "nan" through.
    Some((number.parse::<f64>().ok()?, unit.trim()))
}

/// `number` × `factor` as a whole number, if it is one that fits 2⁵³ (beyond that floats skip integers).
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the range is checked in the line before
fn whole(number: f64, factor: u64) -> Option<u64> {
    #[allow(clippy::cast_precision_loss)] // factors are powers of ten or two, at most 2⁴⁰: exact
    let value = number * factor as f64;
    (value.is_finite() && (0.0..9_007_199_254_740_992.0).contains(&value))
        .then(|| value.round() as u64)
}

/// Bytes: a plain number, or with `B`, `kB`/`MB`/`GB`/`TB` (powers of 1000), `KiB`/`MiB`/`GiB`/`TiB` (powers of 1024).
pub fn size(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "`{text}` is not a size; write bytes, or a number with B, kB, MB, GB, KiB, MiB or GiB (`16 MiB`)"
        )
    };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000 * 1000,
        "gb" => 1000 * 1000 * 1000,
        "tb" => 1000 * 1000 * 1000 * 1000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(bad()),
    };
    whole(number, factor).ok_or_else(bad)
}

/// A span of time: a number with `ns`, `us`/`µs`, `ms`, `s`, `m`/`min` or `h`. A plain number is refused, but for `0`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!("`{text}` is not a duration; write a number with ns, us, ms, s, min or h (`10ms`)")
    };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let factor = match unit {
        "" if number == 0.0 => 1,
        "ns" => 1,
        "us" | "µs" | "μs" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(bad()),
    };
    whole(number, factor)
        .map(Duration::from_nanos)
        .ok_or_else(bad)
}

/// Bits per second, at least one: a plain number, or with `bit`, `kbit`, `mbit`, `gbit` (powers of 1000; `/s` or `ps` may follow).
pub fn rate(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "`{text}` is not a rate; write bits per second, or a number with kbit, mbit or gbit (`100mbit`)"
        )
    };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let unit = unit.to_ascii_lowercase();
    let unit = unit
        .strip_suffix("/s")
        .or_else(|| unit.strip_suffix("ps"))
        .unwrap_or(&unit);
    let factor = match unit {
        "" | "bit" => 1,
        "k" | "kbit" => 1000,
        "m" | "mbit" => 1_000_000,
        "g" | "gbit" => 1_000_000_000,
        _ => return Err(bad()),
    };
    whole(number, factor).filter(|&r| r > 0).ok_or_else(bad)
}

/// A probability: `1%`, `0.5 %`, or a fraction `0.01`; 0 to 100 %.
pub fn probability(text: &str) -> Result<Probability, String> {
    let bad = || {
        format!("`{text}` is not a probability; write 0% to 100%, or a fraction from 0 to 1 (`1%`)")
    };
    let (number, unit) = split(text).ok_or_else(bad)?;
    let fraction = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(bad()),
    };
    if (0.0..=1.0).contains(&fraction) {
        Ok(Probability::new(fraction))
    } else {
        Err(bad())
    }
}

/// `on`, `yes`, `true`, `1` or `off`, `no`, `false`, `0`.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" | "true" | "1" => Ok(true),
        "off" | "no" | "false" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

/// A whole number within `range`.
pub fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!(
            "`{text}` is not a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// A probability in units of 2⁻⁶⁴; 0 is never, `u64::MAX` always.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// `fraction` (0 to 1); what lies outside is clamped, not-a-number is never.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float-to-int cast saturates: that is the clamp
    pub fn new(fraction: f64) -> Self {
        Self((fraction * 18_446_744_073_709_551_616.0) as u64)
    }

    /// In units of 2⁻⁶⁴: how many of all 64-bit numbers, but for 0 (never) and `u64::MAX` (always).
    #[inline]
    #[must_use]
    pub const fn threshold(self) -> u64 {
        self.0
    }

    /// Whether it never happens.
    #[inline]
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// As a fraction, 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for people to read
    pub fn fraction(self) -> f64 {
        self.0 as f64 / 18_446_744_073_709_551_616.0
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.fraction() * 100.0)
    }
}

#[cfg(test)]
mod tests;
