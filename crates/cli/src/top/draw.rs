//! A frame: model and view as cells of a screen. Pure: no terminal, no clock.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    keys,
    view::{Section, View},
};
use crate::{
    look::model::{Flow, Model},
    output::printable,
    units,
};

mod layout;
mod sections;
mod table;
mod text;

use sections::Scene;
pub use text::lines;
use text::{narrow, put};

/// Lower screens have one line less of everything around the sections.
const LOW: u16 = 16;

/// What the program knows beside the model.
#[derive(Debug, Default)]
pub struct Notes {
    /// What is wrong: no answer, an end.
    pub trouble: Option<String>,
    /// Which of several stacks this is, and how many there are.
    pub stack: Option<(usize, usize)>,
    /// The interval, where asking takes so long that it is longer than what was chosen.
    pub stretched: Option<f64>,
}

/// One frame; how many rows can be passed over. `model`: none yet, where no answer has come.
pub fn frame(
    buf: &mut Buffer,
    area: Rect,
    model: Option<&Model>,
    view: &View,
    notes: &Notes,
) -> usize {
    let [mut body, footer] = split(area);
    draw_footer(buf, footer, view);
    if view.has_help {
        help(buf, body);
        return 0;
    }
    let none = Model::default();
    let known = model.unwrap_or(&none);
    for line in header(known, view, notes, body) {
        body = put(buf, body, &line, Style::new());
    }
    let trouble = trouble(model, view, notes);
    if let Some(trouble) = trouble {
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        body = put(buf, body, &trouble, style);
    }
    let Some(model) = model.filter(|_| !body.is_empty()) else {
        return 0;
    };
    let scene = Scene::new(model, view);
    match view.enlarged {
        Some(section) => sections::draw(buf, body, section, &scene),
        None => {
            let wants = Section::ALL.map(|section| sections::wants(section, &scene, body));
            for (section, place) in layout::places(body, wants) {
                sections::draw(buf, place, section, &scene);
            }
        }
    }
    sections::rows(view.enlarged.unwrap_or(Section::Connections), &scene)
}

/// Lines that a frame of `width` could use, with at most `connections` of these.
pub fn height(model: &Model, view: &View, width: u16, connections: usize) -> u16 {
    let area = Rect::new(0, 0, width, u16::MAX);
    let scene = Scene::new(model, view);
    let sections = Section::ALL.map(|section| sections::wants(section, &scene, area));
    let [cores, threads, channels, drops, sockets] = sections;
    let above = cores + threads + channels + drops;
    let below = sockets.min(connections + 2);
    // Half of a frame is the connections' (`layout`); header and a line of trouble come on top.
    narrow((above + below.max(above)) + 6)
}

/// Body and last line.
fn split(area: Rect) -> [Rect; 2] {
    let footer = area.height.min(1);
    let body = Rect {
        height: area.height - footer,
        ..area
    };
    let footer = Rect {
        y: area.y + body.height,
        height: footer,
        ..area
    };
    [body, footer]
}

/// What the stack is and does, in as many lines as it takes; fewer on a low screen.
fn header(model: &Model, view: &View, notes: &Notes, area: Rect) -> Vec<String> {
    let mut about = vec![format!("netchan top: {}", model.process)];
    about.extend((!model.regime.is_empty()).then(|| model.regime.clone()));
    about.push(format!("up {}", units::nanoseconds(model.up_s * 1e9)));
    about.extend((model.cpu_percent).map(|cpu| format!("CPU {cpu:.0} %")));
    let every = notes.stretched.unwrap_or(view.pace.as_secs_f64());
    let about_pace = match view.is_paused {
        true => "paused".to_owned(),
        false => format!("every {}", units::nanoseconds(every * 1e9)),
    };
    about.push(about_pace);
    about.extend((notes.stack).map(|(number, of)| format!("stack {number} of {of}")));
    let drops = model
        .drops_per_s
        .map_or("-".to_owned(), |rate| format!("{}/s", units::count(rate)));
    let mut traffic = vec![
        format!("in {}", flow(&model.received)),
        format!("out {}", flow(&model.sent)),
        format!("drops {drops}"),
    ];
    traffic.extend((model.links != 1).then(|| format!("{} links", model.links)));
    let width = usize::from(area.width);
    let mut lines = wrapped(&about, width);
    if area.height < LOW {
        lines.truncate(1);
    }
    lines.extend(wrapped(&traffic, width));
    lines.truncate(if area.height < LOW { 3 } else { 5 });
    lines
}

/// `parts` in lines, none of them divided.
fn wrapped(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= width => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

fn flow(flow: &Flow) -> String {
    if *flow == Flow::default() {
        return "-".to_owned();
    }
    let bits = flow.bits_per_s.map_or("-".to_owned(), units::bits_per_s);
    let packets = flow.packets_per_s;
    let packets = packets.map_or("-".to_owned(), |n| format!("{} packets/s", units::count(n)));
    format!("{bits} {packets}")
}

/// What a person must know before reading on.
fn trouble(model: Option<&Model>, view: &View, notes: &Notes) -> Option<String> {
    let mut all: Vec<String> = notes.trouble.clone().into_iter().collect();
    match model {
        None if notes.trouble.is_none() => all.push("waiting for the first answer".to_owned()),
        None => {}
        Some(model) => all.extend(model.missing.iter().take(3).cloned()),
    }
    let wrong = view.draft.as_ref().and_then(|draft| draft.wrong.as_deref());
    all.extend(wrong.map(printable));
    (!all.is_empty()).then(|| all.join("; "))
}

fn draw_footer(buf: &mut Buffer, area: Rect, view: &View) {
    if area.is_empty() {
        return;
    }
    let width = usize::from(area.width);
    let text = match &view.draft {
        Some(draft) => {
            // The end of a long text is where it is typed.
            let text = format!("filter: {}_", printable(&draft.text));
            let over = text.chars().count().saturating_sub(width);
            text.chars().skip(over).collect()
        }
        None if view.has_help => "any key: back".to_owned(),
        None => "q quit  h help  Tab section  s sort  r reverse  / filter  p pause  +/- interval"
            .to_owned(),
    };
    put(buf, area, &text, Style::new().add_modifier(Modifier::DIM));
}

fn help(buf: &mut Buffer, mut area: Rect) {
    let title = Style::new().add_modifier(Modifier::BOLD);
    if usize::from(area.height) > keys::HELP.len() {
        area = put(buf, area, "netchan top: keys", title);
    }
    for (key, does) in keys::HELP {
        area = put(buf, area, &format!("{key:<23}{does}"), Style::new());
    }
}

#[cfg(test)]
mod tests;
