//! Which expensive checks this build makes (F7): to be said wherever a measurement is shown.
//!
//! Guarantees:
//! * Constants of the build: code behind one that is off is not there.

/// Lock acquisitions are checked against the declared order ([`witness`](crate::witness); feature `witness`).
pub const WITNESS: bool = crate::witness::ON;

/// Invariants are checked at the end of each turn (feature `invariants`).
pub const INVARIANTS: bool = cfg!(feature = "invariants");

/// Built with debug assertions.
pub const ASSERTIONS: bool = cfg!(debug_assertions);

/// Those that are on, for a person; `none`: figures taken now are comparable.
pub const fn in_words() -> &'static str {
    match (WITNESS, INVARIANTS, ASSERTIONS) {
        (false, false, false) => "none",
        (false, false, true) => "debug assertions",
        (false, true, false) => "invariants",
        (false, true, true) => "invariants, debug assertions",
        (true, false, false) => "witness",
        (true, false, true) => "witness, debug assertions",
        (true, true, false) => "witness, invariants",
        (true, true, true) => "witness, invariants, debug assertions",
    }
}

#[cfg(test)]
mod tests {
    use super::{ASSERTIONS, INVARIANTS, WITNESS, in_words};

    #[test]
    fn each_that_is_on_is_named() {
        let all = [
            (WITNESS, "witness"),
            (INVARIANTS, "invariants"),
            (ASSERTIONS, "debug assertions"),
        ];
        let on: Vec<_> = all.iter().filter(|one| one.0).map(|one| one.1).collect();
        let words = if on.is_empty() {
            "none".to_owned()
        } else {
            on.join(", ")
        };
        assert_eq!(in_words(), words);
    }
}
