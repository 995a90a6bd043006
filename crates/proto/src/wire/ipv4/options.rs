//! IPv4 options (RFC 791 §3.1): walked within their bounds, checked, never acted on.

/// One option as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt<'a> {
    /// Type, copied flag and class included.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
    /// Offset of the type byte from the start of the IPv4 header, for a Parameter Problem.
    pub pointer: u8,
}

/// Option types.
#[allow(missing_docs)]
pub mod kind {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const RECORD_ROUTE: u8 = 7;
    pub const TIMESTAMP: u8 = 68;
    pub const SECURITY: u8 = 130;
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    pub const STREAM_ID: u8 = 136;
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    pub const ROUTER_ALERT: u8 = 148;
}

/// Where an option is wrong: the pointer of an ICMP Parameter Problem, from the start of the IPv4
/// header (RFC 1122 §3.2.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Offset in bytes.
    pub pointer: u8,
}

/// What a host wants to know of options that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A loose or strict source route is there; a caller that drops those looks here.
    pub source_route: bool,
    /// The source route has hops left: we are not its last stop.
    pub route_unfinished: bool,
    /// Router alert (RFC 2113).
    pub router_alert: bool,
}

/// Walks an option area; ends at the end-of-options byte, at the area's end, or after an error.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
    pointer: u8,
}

/// The options in `area`, the bytes between the fixed header and the payload (at most 40).
///
/// No-operation bytes are passed over; what follows the end-of-options byte is not looked at.
pub fn iter(area: &[u8]) -> Iter<'_> {
    Iter {
        rest: area,
        pointer: 20,
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Opt<'a>, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [kind::NOP, rest @ ..] = self.rest {
            self.rest = rest;
            self.pointer = self.pointer.saturating_add(1);
        }
        let rest = core::mem::take(&mut self.rest);
        let [kind, behind @ ..] = rest else {
            return None;
        };
        if *kind == kind::END {
            return None;
        }
        let Some(&len) = behind.first() else {
            return Some(Err(Problem {
                pointer: self.pointer,
            }));
        };
        // Length counts its own two bytes: 0 and 1 would never get anywhere.
        let whole = rest.split_at_checked(usize::from(len)).filter(|_| len >= 2);
        let Some((option, rest)) = whole else {
            return Some(Err(Problem {
                pointer: self.pointer.saturating_add(1),
            }));
        };
        let pointer = self.pointer;
        self.rest = rest;
        self.pointer = pointer.saturating_add(len);
        Some(Ok(Opt {
            kind: *kind,
            data: option.get(2..).unwrap_or_default(),
            pointer,
        }))
    }
}

/// Checks a whole option area: lengths, and the pointers of the options that have one.
///
/// # Errors
/// Where the first wrong byte is. Unknown options are fine (RFC 1122 §3.2.1.8).
pub fn check(area: &[u8]) -> Result<Summary, Problem> {
    let mut summary = Summary::default();
    for option in iter(area) {
        let option = option?;
        match option.kind {
            kind::RECORD_ROUTE => check_route(&option).map(drop)?,
            kind::LOOSE_SOURCE_ROUTE | kind::STRICT_SOURCE_ROUTE => {
                // Two source routes in one datagram: RFC 1122 §3.2.1.8 (c) MUST NOT.
                if summary.source_route {
                    return Err(Problem {
                        pointer: option.pointer,
                    });
                }
                summary.source_route = true;
                summary.route_unfinished = check_route(&option)?;
            }
            kind::TIMESTAMP => check_timestamp(&option)?,
            kind::ROUTER_ALERT if option.data.len() == 2 => summary.router_alert = true,
            kind::ROUTER_ALERT => {
                return Err(Problem {
                    pointer: option.pointer.saturating_add(1),
                });
            }
            _ => {}
        }
    }
    Ok(summary)
}

/// A route: whole addresses, and a pointer to one of them or past them. True if hops are left.
fn check_route(option: &Opt<'_>) -> Result<bool, Problem> {
    let [pointer, addresses @ ..] = option.data else {
        return Err(Problem {
            pointer: option.pointer.saturating_add(1),
        });
    };
    if !addresses.len().is_multiple_of(4) {
        return Err(Problem {
            pointer: option.pointer.saturating_add(1),
        });
    }
    // The pointer counts from the type byte as 1: the first address is at 4, so past the last
    // one is at length + 1.
    let length = option.data.len() + 2;
    if *pointer < 4 || !pointer.is_multiple_of(4) || usize::from(*pointer) > length + 1 {
        return Err(Problem {
            pointer: option.pointer.saturating_add(2),
        });
    }
    Ok(usize::from(*pointer) < length)
}

/// A timestamp option: a known format, and a pointer to an entry or past them.
fn check_timestamp(option: &Opt<'_>) -> Result<(), Problem> {
    let [pointer, flags, entries @ ..] = option.data else {
        return Err(Problem {
            pointer: option.pointer.saturating_add(1),
        });
    };
    let entry_len = match flags & 0x0f {
        0 => 4,
        1 | 3 => 8,
        _ => {
            return Err(Problem {
                pointer: option.pointer.saturating_add(3),
            });
        }
    };
    if !entries.len().is_multiple_of(4) {
        return Err(Problem {
            pointer: option.pointer.saturating_add(1),
        });
    }
    let length = option.data.len() + 2;
    let place = usize::from(*pointer);
    if place < 5 || !(place - 5).is_multiple_of(entry_len) || place > length + 1 {
        return Err(Problem {
            pointer: option.pointer.saturating_add(2),
        });
    }
    Ok(())
}
