//! Numbers for people: with a unit, three significant digits. And the clock they are taken with.

/// Nanoseconds on the stack's clock; it never goes back.
pub fn now_ns() -> u64 {
    netchan::Clock::Real.now().0
}

/// `1500` → `1500 B`, `65536` → `64.0 KiB`: exact where it is short.
pub fn bytes(n: f64) -> String {
    if n.abs() < 10_000.0 {
        return format!("{n:.0} B");
    }
    let mut value = n / 1024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        if value.abs() < 1024.0 {
            return short(value, unit);
        }
        value /= 1024.0;
    }
    short(value, "TiB")
}

/// `12_300` → `12.3 µs`; from two minutes on in minutes and hours.
pub fn nanoseconds(n: f64) -> String {
    if n == 0.0 {
        return "0 s".to_owned();
    }
    let mut value = n;
    for unit in ["ns", "µs", "ms"] {
        if value.abs() < 999.5 {
            return if unit == "ns" {
                format!("{value:.0} ns")
            } else {
                short(value, unit)
            };
        }
        value /= 1000.0;
    }
    match value {
        s if s < 120.0 => short(s, "s"),
        s if s < 7200.0 => short(s / 60.0, "min"),
        s => short(s / 3600.0, "h"),
    }
}

/// `53_500` → `53.5 k`.
pub fn count(n: f64) -> String {
    let mut value = n;
    for unit in ["", "k", "M"] {
        if value.abs() < 999.5 {
            return if unit.is_empty() {
                format!("{value:.0}")
            } else {
                short(value, unit)
            };
        }
        value /= 1000.0;
    }
    short(value, "G")
}

/// `53_500` → `53.5 kbit/s`.
pub fn bits_per_s(n: f64) -> String {
    let number = count(n);
    let gap = if number.contains(' ') { "" } else { " " };
    format!("{number}{gap}bit/s")
}

/// Three significant digits and the unit.
pub fn short(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// How a number is printed.
type Print = fn(f64) -> String;

/// A number under a name that ends in its unit (`rx_bytes`, `rr_ns`, `up_s`, `bulk_gbit_per_s`): the name without
/// the unit, and how the number is printed. `None` where the name has no unit.
pub fn of_name(name: &str) -> Option<(&str, Print)> {
    let table: [(&str, Print); 11] = [
        ("bits_per_s", bits_per_s),
        ("gbit_per_s", |v| short(v, "Gbit/s")),
        ("mbit_per_s", |v| short(v, "Mbit/s")),
        ("bytes_per_s", |v| format!("{}/s", bytes(v))),
        ("per_s", |v| format!("{}/s", count(v))),
        ("bytes", bytes),
        ("ns", nanoseconds),
        ("us", |v| nanoseconds(v * 1e3)),
        ("ms", |v| nanoseconds(v * 1e6)),
        ("s", |v| nanoseconds(v * 1e9)),
        ("percent", |v| format!("{v:.1} %")),
    ];
    table.into_iter().find_map(|(unit, print)| {
        let rest = name.strip_suffix(unit)?;
        let rest = rest.strip_suffix('_').or(rest.is_empty().then_some(name))?;
        Some((rest, print))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_three_digits() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1500.0), "1500 B");
        assert_eq!(bytes(15_360.0), "15.0 KiB");
        assert_eq!(bytes(268_435_456.0), "256 MiB");
        assert_eq!(bytes(2e15), "1819 TiB");
        assert_eq!(nanoseconds(0.0), "0 s");
        assert_eq!(nanoseconds(450.0), "450 ns");
        assert_eq!(nanoseconds(18_300.0), "18.3 µs");
        assert_eq!(nanoseconds(999_600.0), "1.00 ms");
        assert_eq!(nanoseconds(6e10), "60.0 s");
        assert_eq!(nanoseconds(6e11), "10.0 min");
        assert_eq!(nanoseconds(1e13), "2.78 h");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(53_500.0), "53.5 k");
        assert_eq!(count(3.2e9), "3.20 G");
        assert_eq!(bits_per_s(53_500.0), "53.5 kbit/s");
        assert_eq!(bits_per_s(0.0), "0 bit/s");
    }

    #[test]
    fn a_name_tells_its_unit() {
        let print = |name, v| of_name(name).map(|(rest, print)| (rest, print(v)));
        assert_eq!(print("rx_bytes", 2048.0), Some(("rx", "2048 B".to_owned())));
        assert_eq!(print("rr_us", 18.3), Some(("rr", "18.3 µs".to_owned())));
        assert_eq!(
            print("bulk_gbit_per_s", 39.4),
            Some(("bulk", "39.4 Gbit/s".to_owned()))
        );
        assert_eq!(print("bytes", 1.0), Some(("bytes", "1 B".to_owned())));
        assert_eq!(print("up_s", 61.0), Some(("up", "61.0 s".to_owned())));
        assert!(print("drops", 1.0).is_none() && print("status", 1.0).is_none());
    }
}
