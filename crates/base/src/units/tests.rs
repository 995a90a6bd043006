//! Units: what people write, and what they get told.

use super::*;

#[test]
fn sizes() {
    assert_eq!(size("1500"), Ok(1500));
    assert_eq!(size("16 MiB"), Ok(16 << 20));
    assert_eq!(size("1.5KiB"), Ok(1536));
    assert_eq!(size("2 kB"), Ok(2000));
    assert_eq!(size("1_000"), Ok(1000));
    for bad in [
        "",
        "MiB",
        "-1",
        "1e9",
        "1 parsec",
        "inf",
        "9999999 TiB",
        "1.2.3",
    ] {
        assert!(size(bad).is_err_and(|e| e.contains(bad)), "{bad}");
    }
}

#[test]
fn durations() {
    assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
    assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
    assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
    assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
    assert_eq!(duration("0"), Ok(Duration::ZERO));
    for bad in ["10", "ms", "-1s", "5 weeks"] {
        assert!(duration(bad).is_err_and(|e| e.contains(bad)), "{bad}");
    }
}

#[test]
fn rates() {
    assert_eq!(rate("100mbit"), Ok(100_000_000));
    assert_eq!(rate("2.5 Gbit/s"), Ok(2_500_000_000));
    assert!(rate("64kB").is_err());
    assert_eq!(rate("9600"), Ok(9600));
    assert!(rate("0").is_err());
}

#[test]
fn probabilities() {
    assert_eq!(probability("0"), Ok(Probability::NEVER));
    assert_eq!(probability("100%"), Ok(Probability::ALWAYS));
    assert!((probability("1%").unwrap().fraction() - 0.01).abs() < 1e-12);
    assert!((probability("0.25").unwrap().fraction() - 0.25).abs() < 1e-12);
    for bad in ["101%", "1.5", "-1%", "half", "NaN"] {
        assert!(probability(bad).is_err_and(|e| e.contains(bad)), "{bad}");
    }
}

#[test]
fn switches_and_numbers() {
    assert_eq!(switch("on"), Ok(true));
    assert_eq!(switch("false"), Ok(false));
    assert!(switch("maybe").is_err());
    assert_eq!(number("7", 1..=9), Ok(7));
    assert!(number("10", 1..=9).is_err_and(|e| e.contains("from 1 to 9")));
}
