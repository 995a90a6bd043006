//! What events mean: declared in one place, checked when the program is compiled, printed in English.
//!
//! ```
//! use percore::trace::{Event, Table};
//! pub const SENT: Event<2> = Event::new(0, "sent", "sent {items} items, the oldest had waited {wait ns}");
//! pub const IDLE: Event<0> = Event::new(1, "idle", "nothing to do");
//! pub static EVENTS: Table = Table::new(&[SENT.line(), IDLE.line()]);
//! ```
//!
//! The file that declares them is the list of all there are. An event's number is its place in the table; a wrong one, or a text with
//! more or fewer arguments than the event, does not compile.

use super::Record;
use std::fmt;

/// The most arguments that an event can have: what a cache line holds beside the tag and the stamp.
pub const ARGS_MAX: usize = 4;

/// An event with `N` arguments.
#[derive(Clone, Copy, Debug)]
pub struct Event<const N: usize> {
    line: Line,
}

/// An event's line in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    id: u16,
    /// Short, for filters: one word.
    pub name: &'static str,
    /// English; `{what}` or `{what unit}` for each argument. The unit `hex` prints it in base 16.
    pub text: &'static str,
}

impl<const N: usize> Event<N> {
    /// The event in place `id` of its table; `text` has `N` arguments as [`Line::text`] says.
    ///
    /// # Panics
    /// When compiled, if used as a constant: more than [`ARGS_MAX`] arguments, or another number of them in the text.
    pub const fn new(id: u16, name: &'static str, text: &'static str) -> Self {
        assert!(N <= ARGS_MAX, "too many arguments");
        assert!(arguments(text) == N, "the text has other arguments");
        let line = Line { id, name, text };
        Self { line }
    }

    /// What to put into the table.
    pub const fn line(&self) -> Line {
        self.line
    }

    /// Its number: its place in the table.
    #[inline(always)]
    pub const fn id(&self) -> u16 {
        self.line.id
    }
}

/// How many `{}` there are.
const fn arguments(text: &str) -> usize {
    let text = text.as_bytes();
    let (mut i, mut n, mut open) = (0, 0, false);
    while i < text.len() {
        match text[i] {
            b'{' if !open => (n, open) = (n + 1, true),
            b'}' if open => open = false,
            b'{' | b'}' => panic!("braces that do not match"),
            _ => {}
        }
        i += 1;
    }
    assert!(!open, "braces that do not match");
    n
}

/// All events of a program, each in the place that is its number.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static [Line]);

impl Table {
    /// The table of these.
    ///
    /// # Panics
    /// When compiled, if used as a constant: an event that is not in its place.
    pub const fn new(lines: &'static [Line]) -> Self {
        let mut i = 0;
        while i < lines.len() {
            assert!(lines[i].id as usize == i, "an event is not in its place");
            i += 1;
        }
        Self(lines)
    }

    /// Its lines, in the order of their numbers.
    pub const fn lines(&self) -> &'static [Line] {
        self.0
    }

    /// The line of the event with this number.
    pub fn get(&self, event: u16) -> Option<&'static Line> {
        self.0.get(usize::from(event))
    }

    /// `record` in English, without its stamp; an event that is not in the table by its number.
    pub fn describe<'a>(&self, record: &'a Record) -> impl fmt::Display + use<'a> {
        let line = self.get(record.event);
        fmt::from_fn(move |f| match line {
            Some(line) => line.print(f, record),
            None => write!(f, "event {} {:x?}", record.event, record.args),
        })
    }
}

impl Line {
    /// The name and the unit (empty: none) of each argument, in their order.
    pub fn arguments(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let pieces = self.text.split('{').skip(1);
        pieces.map(|piece| {
            let argument = piece
                .split_once('}')
                .map_or(piece, |(argument, _)| argument);
            argument.split_once(' ').unwrap_or((argument, ""))
        })
    }

    /// The text with `name=value unit` for each argument.
    fn print(&self, f: &mut fmt::Formatter<'_>, record: &Record) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        let mut args = record.args.iter();
        let mut rest = self.text;
        while let Some((before, argument)) = rest.split_once('{') {
            let (argument, after) = argument.split_once('}').unwrap_or((argument, ""));
            f.write_str(before)?;
            let value = args.next().unwrap_or(&0);
            match argument.split_once(' ') {
                Some((name, "hex")) => write!(f, "{name}={value:#x}")?,
                Some((name, unit)) => write!(f, "{name}={value} {unit}")?,
                None => write!(f, "{argument}={value}")?,
            }
            rest = after;
        }
        f.write_str(rest)
    }
}
