//! The series as a page: one file with everything in it, for a browser without a network.
//!
//! Axes, zoom areas and the cursor are uPlot's; `page/page.js` draws what a time-sequence diagram has. What came from the capture is data to the page: it is
//! in one JSON element, in which no character can end that, and is shown as text only.

use std::time::Duration;

use serde::Serialize;

use super::{
    connections::Side,
    direction::Direction,
    series::{Answer, Bar, Block, Mark, Point, Scale, What},
    track::Kind,
};
use crate::table;

/// Parts are named between `@@`.
const PAGE: &str = include_str!("page/page.html");
/// The same where a server has the parts: what the policy of its pages lets in.
const SERVED: &str = include_str!("page/served.html");
const BODY: &str = include_str!("page/body.html");
pub const STYLE: &str = include_str!("page/page.css");
pub const SCRIPT: &str = include_str!("page/page.js");
pub const LANGUAGE: &str = include_str!("page/language.js");
/// uPlot 1.6.32, as its package has it.
pub const UPLOT: &str = include_str!("page/uplot.min.js");
pub const UPLOT_STYLE: &str = include_str!("page/uplot.min.css");
const UPLOT_LICENCE: &str = include_str!("page/uplot.LICENSE");

/// What a page shows.
pub struct Page<'a> {
    /// The file, or the socket.
    pub source: &'a str,
    /// The connection's number in the file.
    pub number: Option<usize>,
    /// When the connection began, since 1970.
    pub begin: Duration,
    pub notes: &'a [String],
    pub directions: Vec<&'a Direction>,
    /// The direction that is shown first.
    pub first: Side,
}

impl Page<'_> {
    /// The file.
    ///
    /// # Errors
    /// What the library says.
    pub fn html(&self) -> Result<String, serde_json::Error> {
        Ok(of_data(&self.data()?))
    }

    /// What the page shows, as JSON that can stand in it.
    ///
    /// # Errors
    /// What the library says.
    pub fn data(&self) -> Result<String, serde_json::Error> {
        data(&self.facts())
    }

    fn facts(&self) -> Facts<'_> {
        let title = match self.number {
            Some(number) => format!("{}, connection {number}", self.source),
            None => self.source.to_owned(),
        };
        let mut senders = self.directions.iter().map(|direction| direction.sender);
        let first = senders.position(|sender| sender == self.first);
        Facts {
            title,
            notes: self.notes,
            begin_ms: self.begin.as_secs_f64() * 1e3,
            first: first.unwrap_or(0),
            directions: self.directions.iter().map(|one| direction(one)).collect(),
        }
    }
}

/// The file with this data.
pub fn of_data(data: &str) -> String {
    fill(PAGE, data)
}

/// The page whose parts a server has, its data too.
pub fn served() -> String {
    fill(SERVED, "")
}

fn fill(template: &str, data: &str) -> String {
    let mut page = String::with_capacity(data.len() + (128 << 10));
    for (i, part) in template.split("@@").enumerate() {
        page.push_str(match (i % 2, part) {
            (0, text) => text,
            (_, "BODY") => BODY,
            (_, "STYLE") => STYLE,
            (_, "SCRIPT") => SCRIPT,
            (_, "LANGUAGE") => LANGUAGE,
            (_, "UPLOT") => UPLOT,
            (_, "UPLOT_STYLE") => UPLOT_STYLE,
            (_, "UPLOT_LICENCE") => UPLOT_LICENCE,
            (_, _) => data,
        });
    }
    page
}

/// JSON that can stand in a page: nothing in it begins an element or ends one.
fn data(facts: &Facts<'_>) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string(facts)?;
    for (character, escaped) in [('&', "\\u0026"), ('<', "\\u003c"), ('>', "\\u003e")] {
        if text.contains(character) {
            text = text.replace(character, escaped);
        }
    }
    Ok(text)
}

#[derive(Serialize)]
struct Facts<'a> {
    title: String,
    notes: &'a [String],
    begin_ms: f64,
    first: usize,
    directions: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    title: String,
    duration: u64,
    facts: Vec<(String, String)>,
    is_scaled: bool,
    bars: Bars,
    answers: Answers,
    blocks: Blocks,
    marks: Marks,
    flight: Points,
    round_trips: Points,
    throughput: Points,
    goodput: Points,
    interval: u64,
}

// One array for each member, as thousands of small objects would be three times as large.

#[derive(Serialize)]
struct Bars {
    time: Vec<u64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    kind: Vec<u8>,
    flags: Vec<u8>,
}

#[derive(Serialize)]
struct Answers {
    time: Vec<u64>,
    ack: Vec<i64>,
    window: Vec<u64>,
    again: Vec<u8>,
}

#[derive(Serialize)]
struct Blocks {
    time: Vec<u64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    again: Vec<u8>,
}

#[derive(Serialize)]
struct Marks {
    time: Vec<u64>,
    place: Vec<i64>,
    what: Vec<u8>,
    from: Vec<&'static str>,
}

type Points = (Vec<u64>, Vec<u64>);

fn column<T, V>(all: &[T], of: impl Fn(&T) -> V) -> Vec<V> {
    all.iter().map(of).collect()
}

fn points(all: &[Point]) -> Points {
    all.iter().copied().unzip()
}

fn direction(one: &Direction) -> Shown {
    let facts = one.facts();
    let told = ["sender", "from", "to"];
    let fields = facts.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !told.contains(&name.as_str()));
    let series = &one.series;
    Shown {
        title: one.title(),
        duration: one.duration,
        facts: fields
            .map(|(name, value)| table::field(name, value))
            .collect(),
        is_scaled: matches!(series.scale, Scale::Known(_)),
        bars: bars(&series.bars),
        answers: answers(&series.answers),
        blocks: blocks(&series.blocks),
        marks: marks(&series.marks),
        flight: points(&series.flight),
        round_trips: points(&series.round_trips),
        throughput: points(&series.throughput),
        goodput: points(&series.goodput),
        interval: series.interval,
    }
}

fn bars(bars: &[Bar]) -> Bars {
    let kind = |bar: &Bar| match bar.kind {
        Kind::New => 0,
        Kind::Again => 1,
        Kind::Late => 2,
        Kind::Probe => 3,
    };
    Bars {
        time: column(bars, |bar| bar.time),
        begin: column(bars, |bar| bar.begin),
        end: column(bars, |bar| bar.end),
        kind: column(bars, kind),
        flags: column(bars, |bar| bar.flags.bits()),
    }
}

fn answers(answers: &[Answer]) -> Answers {
    Answers {
        time: column(answers, |answer| answer.time),
        ack: column(answers, |answer| answer.ack),
        window: column(answers, |answer| answer.window),
        again: column(answers, |answer| u8::from(answer.is_duplicate)),
    }
}

fn blocks(blocks: &[Block]) -> Blocks {
    Blocks {
        time: column(blocks, |block| block.time),
        begin: column(blocks, |block| block.left),
        end: column(blocks, |block| block.right),
        again: column(blocks, |block| u8::from(block.is_duplicate)),
    }
}

fn marks(marks: &[Mark]) -> Marks {
    let what = |mark: &Mark| match mark.what {
        What::Syn => 0,
        What::Fin => 1,
        What::Reset => 2,
        What::ZeroWindow => 3,
        What::DuplicateAck => 4,
    };
    Marks {
        time: column(marks, |mark| mark.time),
        place: column(marks, |mark| mark.place),
        what: column(marks, what),
        from: column(marks, |mark| mark.from.name()),
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
