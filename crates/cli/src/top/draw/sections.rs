//! The sections of a frame: their headings, their rows, and how much room they could use.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};

use super::{
    table::{self, Cell, Column},
    text::{narrow, put},
};
use crate::{
    look::{
        model::{Channel, Connection, Core, Drops, Model, Thread},
        order::Order,
    },
    output::printable,
    show::Filter,
    top::view::{Section, View},
    units,
};

/// A core's cell: `12 [||||||      ]  63 %`, and a gap.
const CORE: usize = 26;
/// A bar between its brackets.
const BAR: usize = 12;

/// What a frame is made of.
pub struct Scene<'a> {
    pub model: &'a Model,
    pub view: &'a View,
    /// The sockets that are wanted, in order: there may be ten thousand of them.
    pub chosen: Vec<&'a Connection>,
}

impl<'a> Scene<'a> {
    pub fn new(model: &'a Model, view: &'a View) -> Self {
        Self {
            model,
            view,
            chosen: view.chosen(model),
        }
    }
}

/// Lines that a section could use; 0 where it has nothing to say.
pub fn wants(section: Section, scene: &Scene<'_>, area: Rect) -> usize {
    let rows = rows(section, scene);
    match section {
        // Whatever there is: that there are none is said.
        Section::Connections => rows.max(1) + 2,
        _ if rows == 0 => 0,
        Section::Cores => rows.div_ceil(columns_of_cores(area.width)) + 1,
        _ => rows + 1,
    }
}

/// How many rows a section has.
pub fn rows(section: Section, scene: &Scene<'_>) -> usize {
    let model = scene.model;
    match section {
        Section::Cores => model.cores.len(),
        Section::Threads => model.threads.len(),
        Section::Channels => model.channels.len(),
        Section::Drops => model.drops.len(),
        Section::Connections => scene.chosen.len(),
    }
}

/// One section in its place.
pub fn draw(buf: &mut Buffer, area: Rect, section: Section, scene: &Scene<'_>) {
    let Scene { model, view, .. } = scene;
    let last = rows(section, scene).saturating_sub(1);
    let passed = match section {
        Section::Connections => view.passed.min(last),
        _ if view.enlarged.is_some() => view.passed.min(last),
        _ => 0,
    };
    match section {
        Section::Cores => cores(buf, area, &model.cores, passed),
        Section::Threads => {
            let (all, columns) = (&model.threads, threads_columns());
            rows_of(buf, area, section, all, passed, columns, thread);
        }
        Section::Channels => {
            let (all, columns) = (&model.channels, channels_columns());
            rows_of(buf, area, section, all, passed, columns, channel);
        }
        Section::Drops => {
            let (all, columns) = (&model.drops, drops_columns());
            rows_of(buf, area, section, all, passed, columns, drops);
        }
        Section::Connections => connections(buf, area, scene, passed),
    }
}

/// A table whose first heading names the section, and says how much of it is there to see.
fn rows_of<T>(
    buf: &mut Buffer,
    area: Rect,
    section: Section,
    all: &[T],
    passed: usize,
    mut columns: Vec<Column>,
    row: impl Fn(&T) -> Vec<Cell>,
) {
    let room = usize::from(area.height.saturating_sub(1));
    let shown = all.iter().skip(passed).take(room);
    let rows: Vec<Vec<Cell>> = shown.map(row).collect();
    let title = match all.len() {
        n if n == rows.len() => format!("{} {n}", section.title()),
        n => format!("{} {} of {n}", section.title(), rows.len()),
    };
    if let Some(first) = columns.first_mut() {
        first.least = first.least.max(title.chars().count());
        first.title = title;
    }
    table::draw(buf, area, &columns, &rows);
}

fn columns_of_cores(width: u16) -> usize {
    (usize::from(width) / CORE).max(1)
}

/// As many side by side as there is room for.
fn cores(buf: &mut Buffer, area: Rect, all: &[Core], passed: usize) {
    let side = columns_of_cores(area.width);
    let room = usize::from(area.height.saturating_sub(1)) * side;
    let passed = passed - passed % side;
    let shown: Vec<&Core> = all.iter().skip(passed).take(room).collect();
    let title = match all.len() {
        n if n == shown.len() => format!("Cores {n}"),
        n => format!("Cores {} of {n}", shown.len()),
    };
    table::draw(buf, area, &[Column::name(title, 0, 20)], &[]);
    for (i, core) in shown.iter().enumerate() {
        let (x, y) = (i % side * CORE, i / side + 1);
        let (x, y) = (area.x + narrow(x), area.y + narrow(y));
        let share = core.busy_percent;
        let text = share.map_or("   -".to_owned(), |share| format!("{share:3.0} %"));
        let text = format!("{:>3} {} {text}", core.number, bar(share.unwrap_or(0.0)));
        let style = busy(share.unwrap_or(0.0));
        let width = usize::from(area.right().saturating_sub(x));
        buf.set_stringn(x, y, text, width.min(CORE - 2), style);
    }
}

/// `[||||        ]` of hundredths.
fn bar(percent: f64) -> String {
    let filled = (0..BAR).take_while(|i| {
        let step = 100.0 * (*i as f64 + 0.5) / BAR as f64; // precision: a drawing
        percent >= step
    });
    let filled = filled.count();
    format!("[{}{}]", "|".repeat(filled), " ".repeat(BAR - filled))
}

fn busy(percent: f64) -> Style {
    Style::new().fg(match percent {
        p if p >= 90.0 => Color::Red,
        p if p >= 60.0 => Color::Yellow,
        _ => Color::Green,
    })
}

fn alarm(is_on: bool) -> Style {
    match is_on {
        true => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        false => Style::new(),
    }
}

fn or_dash<T>(value: Option<T>, print: impl Fn(T) -> String) -> Cell {
    value.map_or("-".to_owned(), print).into()
}

fn per_s(rate: f64) -> String {
    format!("{}/s", units::count(rate))
}

fn threads_columns() -> Vec<Column> {
    vec![
        Column::name("", 0, 16),
        Column::number("CPU", 1, 6),
        Column::number("core", 5, 4),
        Column::name("state", 2, 7),
        Column::name("role", 4, 8),
        Column::name("does", 3, 12),
    ]
}

fn thread(thread: &Thread) -> Vec<Cell> {
    let state = Cell(thread.state.clone(), alarm(thread.state == "stuck"));
    vec![
        thread.name.clone().into(),
        or_dash(thread.cpu_percent, |cpu| format!("{cpu:.1} %")),
        or_dash(thread.core, |core| core.to_string()),
        state,
        thread.role.clone().into(),
        thread.does.clone().into(),
    ]
}

fn channels_columns() -> Vec<Column> {
    vec![
        Column::name("", 0, 16),
        Column::number("depth", 1, 9),
        Column::name("full", 4, BAR + 2),
        Column::number("drops/s", 2, 7),
        Column::number("drops", 3, 7),
    ]
}

fn channel(channel: &Channel) -> Vec<Cell> {
    let (depth, slots) = (channel.depth, channel.slots);
    let share = 100.0 * depth as f64 / slots.max(1) as f64; // precision: a drawing
    let known = slots > 0;
    let bar = if known { bar(share) } else { String::new() };
    let depth = match known {
        true => format!("{depth}/{slots}"),
        false => depth.to_string(),
    };
    let rate = channel.drops_per_s;
    let drops = rate.map_or("-".to_owned(), per_s);
    vec![
        channel.name.clone().into(),
        depth.into(),
        Cell(bar, busy(share)),
        Cell(drops, alarm(rate > Some(0.0))),
        or_dash(channel.drops, |n| n.to_string()),
    ]
}

fn drops_columns() -> Vec<Column> {
    vec![
        Column::name("", 0, 16),
        Column::number("drops/s", 1, 8),
        Column::number("packets", 2, 8),
        Column::name("meaning", 3, 16),
    ]
}

fn drops(row: &Drops) -> Vec<Cell> {
    let rate = row.per_s.map_or("-".to_owned(), per_s);
    vec![
        row.reason.clone().into(),
        Cell(rate, alarm(row.per_s > Some(0.0))),
        row.packets.to_string().into(),
        row.meaning.clone().into(),
    ]
}

/// A title with what is left out, and the table.
fn connections(buf: &mut Buffer, area: Rect, scene: &Scene<'_>, passed: usize) {
    let Scene {
        model,
        view,
        chosen,
    } = scene;
    let room = usize::from(area.height.saturating_sub(2));
    let shown: Vec<Vec<Cell>> = (chosen.iter().skip(passed).take(room))
        .map(|socket| connection(socket))
        .collect();
    let mut title = match chosen.len() {
        n if n == shown.len() => format!("Connections {n}"),
        n => format!("Connections {} of {n}", shown.len()),
    };
    let way = if view.is_reversed { ", reversed" } else { "" };
    title.push_str(&format!(", by {}{way}", view.order.name()));
    if view.filter != Filter::default() {
        title.push_str(&format!(", filter: {}", printable(&view.words)));
    }
    let others = [("LISTEN", "listening"), ("TIME-WAIT", "in TIME-WAIT")];
    for (state, words) in others {
        match model.in_state(state) {
            0 => {}
            n => title.push_str(&format!(", {n} {words}")),
        }
    }
    if model.omitted > 0 {
        let more = format!(", {} more that the answer had no room for", model.omitted);
        title.push_str(&more);
    }
    let style = Style::new().add_modifier(Modifier::BOLD);
    let rest = put(buf, area, &title, style);
    table::draw(buf, rest, &connections_columns(view.order), &shown);
    if chosen.is_empty() && rest.height > 1 {
        let none = Rect {
            y: rest.y + 1,
            height: 1,
            ..rest
        };
        put(buf, none, "(none)", Style::new());
    }
}

/// The column that they are sorted by matters more than any other.
fn connections_columns(order: Order) -> Vec<Column> {
    let mut columns = vec![
        Column::name("prot", 10, 4),
        Column::name("state", 5, 6),
        Column::address("local", 4),
        Column::address("remote", 0),
        Column::number("in", 1, 11),
        Column::number("out", 2, 11),
        Column::number("RTT", 3, 8),
        Column::number("cwnd", 7, 8),
        Column::number("retr/s", 6, 7),
        Column::number("recv-Q", 9, 7),
        Column::number("send-Q", 8, 7),
        Column::name("process", 11, 10),
    ];
    let sorted: &[usize] = match order {
        Order::Rate => &[4, 5],
        Order::In => &[4],
        Order::Out => &[5],
        Order::Rtt => &[6],
        Order::Cwnd => &[7],
        Order::Retransmits => &[8],
        Order::Queues => &[9, 10],
        Order::Local => &[2],
        Order::Remote => &[3],
    };
    for &i in sorted {
        let column = &mut columns[i];
        column.rank = column.rank.min(1);
        column.title.push('▼');
    }
    columns
}

fn connection(socket: &Connection) -> Vec<Cell> {
    let retransmits = socket.retransmits_per_s;
    let has_bytes = socket.protocol == "tcp" && socket.remote.is_some();
    let queue = |n: u64| match has_bytes {
        true => units::bytes(n as f64), // precision: for a person
        false => n.to_string(),
    };
    let rate = retransmits.map_or("-".to_owned(), per_s);
    let none = || "-".to_owned();
    vec![
        socket.protocol.clone().into(),
        socket.state.clone().into(),
        socket.local.clone().into(),
        socket.remote.clone().unwrap_or_else(none).into(),
        or_dash(socket.in_bits_per_s, units::bits_per_s),
        or_dash(socket.out_bits_per_s, units::bits_per_s),
        or_dash(socket.rtt_us, |us| units::nanoseconds(us as f64 * 1e3)), // precision: for a person
        or_dash(socket.cwnd_bytes, |n| units::bytes(n as f64)),           // precision: for a person
        Cell(rate, alarm(retransmits > Some(0.0))),
        or_dash(socket.receive_queue, queue),
        or_dash(socket.send_queue, queue),
        socket.process.clone().unwrap_or_else(none).into(),
    ]
}
