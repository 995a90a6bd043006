//! The series as a picture: SVG that plotters draws, and PNG that resvg makes of it.

use std::collections::{BTreeMap, HashSet};

use plotters::{
    chart::{ChartBuilder, ChartContext, SeriesLabelPosition},
    coord::{Shift, types::RangedCoordf64},
    drawing::{DrawingArea, IntoDrawingArea},
    element::{Circle, PathElement, Rectangle, Text},
    prelude::{Cartesian2d, SVGBackend},
    style::{Color, IntoFont, RGBColor, ShapeStyle, WHITE, text_anchor},
};

use super::{
    series::{Point, Scale, Series, What},
    track::Kind,
};
use crate::units;

/// Of one direction, pixels.
const WIDTH: u32 = 1200;
/// The lines above the charts, and the charts: time-sequence, in flight, round trips, rates.
const HEAD: u32 = 100;
const HEIGHTS: [u32; 4] = [560, 250, 200, 220];
/// Pixels of the PNG for each of the SVG.
const PNG_SCALE: f32 = 2.0;
/// Pixels that a bar has at least: one of many, and one that is looked for.
const THIN: i32 = 2;
const SEEN: i32 = 8;
/// Letters that are as near as this are not told apart: the first is drawn.
const CELL: i32 = 9;
/// Notes that have room; the page and the terminal have all.
const NOTES: usize = 2;
/// Characters of a line.
const LINE: usize = 150;

const TEXT: RGBColor = RGBColor(0x1f, 0x29, 0x37);
const SENT: RGBColor = RGBColor(0x25, 0x63, 0xeb);
const AGAIN: RGBColor = RGBColor(0xdc, 0x26, 0x26);
const LATE: RGBColor = RGBColor(0xd9, 0x77, 0x06);
const ACK: RGBColor = RGBColor(0x15, 0x80, 0x3d);
const EDGE: RGBColor = RGBColor(0x7c, 0x3a, 0xed);
const SACK: RGBColor = RGBColor(0x06, 0xb6, 0xd4);
const TWICE: RGBColor = RGBColor(0xdb, 0x27, 0x77);

/// One direction.
pub struct Column<'a> {
    pub title: String,
    pub facts: String,
    pub notes: &'a [String],
    pub series: &'a Series,
    /// Nanoseconds from the connection's first segment to its last.
    pub duration: u64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// What drawing in memory can fail with is a bug or no memory; its words are enough.
type Drawn = Result<(), String>;

/// The picture of all `columns`, side by side.
///
/// # Errors
/// What the library says.
pub fn svg(columns: &[Column<'_>]) -> Result<String, String> {
    let mut text = String::new();
    let width = WIDTH * u32::try_from(columns.len()).unwrap_or(1);
    let height = HEAD + HEIGHTS.iter().sum::<u32>();
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        let areas = root.split_evenly((1, columns.len()));
        for (area, column) in areas.iter().zip(columns) {
            draw(area, column)?;
        }
        root.present().map_err(said)?;
    }
    Ok(text)
}

/// The picture `svg` as PNG.
///
/// # Errors
/// What the library says.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let mut options = resvg::usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(ttf_noto_sans::REGULAR.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    let tree = resvg::usvg::Tree::from_str(svg, &options).map_err(said)?;
    let size = tree.size().to_int_size().scale_by(PNG_SCALE);
    let size = size.ok_or("the picture has no size")?;
    let pixels = resvg::tiny_skia::Pixmap::new(size.width(), size.height());
    let mut pixels = pixels.ok_or("the picture is too large")?;
    let scale = resvg::tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().map_err(said)
}

fn said(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn draw(area: &Area<'_>, column: &Column<'_>) -> Drawn {
    let (head, mut rest) = area.split_vertically(HEAD);
    heading(&head, column)?;
    let mut charts = Vec::new();
    for height in HEIGHTS {
        let (chart, below) = rest.split_vertically(height);
        charts.push(chart);
        rest = below;
    }
    let [sequence, flight, trips, rates] = charts.as_slice() else {
        return Err("there are four charts".to_owned());
    };
    let (series, duration) = (column.series, column.duration);
    time_sequence(sequence, series, duration)?;
    windows(flight, series, duration)?;
    round_trips(trips, series, duration)?;
    throughput(rates, series, duration)
}

fn heading(area: &Area<'_>, column: &Column<'_>) -> Drawn {
    let font = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    let mut y = 12;
    let mut line = |text: &str, size: i32| {
        let drawn = area.draw(&Text::new(fitting(text), (20, y), font(size)));
        y += size;
        drawn.map_err(said)
    };
    line(&column.title, 24)?;
    line(&column.facts, 17)?;
    for note in column.notes.iter().take(NOTES) {
        line(note, 17)?;
    }
    Ok(())
}

/// What has room in a line, of characters that XML has.
fn fitting(text: &str) -> String {
    let is_in_xml = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let all: Vec<char> = text.chars().filter(is_in_xml).collect();
    match all.get(..LINE) {
        Some(line) if all.len() > LINE => line.iter().chain(&['…']).collect(),
        _ => all.iter().collect(),
    }
}

fn seconds(time: u64) -> f64 {
    time as f64 / 1e9
}

/// An empty chart from 0 to `duration` and `low` to `high`, with `room` above for a legend, as a part of that.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    duration: u64,
    (low, high, room): (f64, f64, f64),
    what: &str,
    label: &dyn Fn(&f64) -> String,
) -> Result<Chart<'a, 'b>, String> {
    let right = seconds(duration.max(1_000)) * 1.01;
    let high = if high > low { high } else { low + 1.0 };
    let top = high + (high - low) * room;
    let mut chart = ChartBuilder::on(area)
        .margin_left(10)
        .margin_right(30)
        .margin_top(10)
        .x_label_area_size(28)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..right, low..top)
        .map_err(said)?;
    chart
        .configure_mesh()
        .x_labels(12)
        .y_labels(8)
        .max_light_lines(0)
        .bold_line_style(RGBColor(0xe5, 0xe7, 0xeb))
        .axis_style(RGBColor(0x9c, 0xa3, 0xaf))
        .label_style(("sans-serif", 15).into_font().color(&TEXT))
        .axis_desc_style(("sans-serif", 16).into_font().color(&TEXT))
        .x_label_formatter(&|s| units::nanoseconds(s * 1e9))
        .y_label_formatter(label)
        .y_desc(what)
        .draw()
        .map_err(said)?;
    Ok(chart)
}

fn legend<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    names: &[(&str, RGBColor)],
    at: SeriesLabelPosition,
) -> Drawn {
    for &(name, color) in names {
        let swatch = move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled());
        let none: Option<Circle<(f64, f64), i32>> = None;
        let entry = chart.draw_series(none).map_err(said)?;
        entry.label(name).legend(swatch);
    }
    chart
        .configure_series_labels()
        .position(at)
        .margin(8)
        .label_font(("sans-serif", 15).into_font().color(&TEXT))
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(0xd1, 0xd5, 0xdb))
        .draw()
        .map_err(said)
}

/// Vertical bars at a time from one place to another, of `least` pixels at least: what falls on the same pixels is drawn once.
fn bars(
    chart: &mut Chart<'_, '_>,
    bars: impl Iterator<Item = (u64, i64, i64)>,
    least: i32,
    style: ShapeStyle,
) -> Drawn {
    let mut columns: BTreeMap<i32, Vec<(i32, i32)>> = BTreeMap::new();
    for (time, begin, end) in bars {
        let (x, low) = chart.backend_coord(&(seconds(time), begin as f64));
        let (_, high) = chart.backend_coord(&(seconds(time), end as f64));
        let column = columns.entry(x).or_default();
        // Most are above the one before.
        match column.last_mut() {
            Some(last) if high <= last.1 && low <= last.1 && low >= last.0 - 1 => {
                last.0 = last.0.min(high);
            }
            _ => column.push((high, low)),
        }
    }
    let area = chart.plotting_area().strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    for (x, mut parts) in columns {
        parts.sort_unstable();
        let mut whole: Vec<(i32, i32)> = Vec::new();
        for (high, low) in parts {
            match whole.last_mut() {
                Some(last) if high <= last.1 + 1 => last.1 = last.1.max(low),
                _ => whole.push((high, low)),
            }
        }
        for (high, low) in whole {
            let more = (least - (low - high)).max(0);
            let (high, low) = (high - more / 2, low + (more - more / 2));
            let ends = vec![(x - left, high - top), (x - left, low - top)];
            area.draw(&PathElement::new(ends, style)).map_err(said)?;
        }
    }
    Ok(())
}

/// A line: of what falls on one column of pixels, the first, the lowest, the highest and the last. It is broken where it is above the chart.
fn line(
    chart: &mut Chart<'_, '_>,
    points: impl Iterator<Item = (u64, f64)>,
    is_stepped: bool,
    style: ShapeStyle,
) -> Drawn {
    let top = chart.y_range().end;
    let mut paths: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    let mut of_column: Vec<(f64, f64)> = Vec::new();
    let (mut column, mut before) = (i32::MIN, None);
    for (time, value) in points {
        let x = seconds(time);
        let step = before.filter(|_| is_stepped).map(|value| (x, value));
        for point in step.into_iter().chain([(x, value)]) {
            let (pixel, _) = chart.backend_coord(&(x, 0.0));
            if pixel != column {
                thin(&mut of_column, top, &mut paths);
                column = pixel;
            }
            of_column.push(point);
        }
        before = Some(value);
    }
    thin(&mut of_column, top, &mut paths);
    paths.retain(|path| !path.is_empty());
    let paths = paths.into_iter().map(|path| PathElement::new(path, style));
    chart.draw_series(paths).map_err(said)?;
    Ok(())
}

/// Puts what a column of pixels needs behind the last path.
fn thin(column: &mut Vec<(f64, f64)>, top: f64, paths: &mut Vec<Vec<(f64, f64)>>) {
    let low = column.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let high = column.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let (first, last) = (column.first().copied(), column.last().copied());
    for (x, value) in [first, low, high, last].into_iter().flatten() {
        let Some(path) = paths.last_mut() else { return };
        if value <= top {
            path.push((x, value));
        } else if !path.is_empty() {
            path.push((x, top));
            paths.push(Vec::new());
        }
    }
    column.clear();
}

/// Points: what falls on the same pixel is drawn once.
fn points(chart: &mut Chart<'_, '_>, all: &[Point], style: ShapeStyle) -> Drawn {
    let mut seen = HashSet::new();
    let all = all
        .iter()
        .map(|&(time, value)| (seconds(time), value as f64));
    let all: Vec<(f64, f64)> = all
        .filter(|point| seen.insert(chart.backend_coord(point)))
        .collect();
    let circles = all.into_iter().map(|point| Circle::new(point, 2, style));
    chart.draw_series(circles).map_err(said)?;
    Ok(())
}

fn time_sequence(area: &Area<'_>, series: &Series, duration: u64) -> Drawn {
    let edge = |answer: &super::series::Answer| answer.ack as f64 + answer.window as f64;
    let top = series.bars.iter().map(|bar| bar.end as f64);
    let acked = series.answers.iter().map(|answer| answer.ack as f64);
    let high = top.clone().chain(acked.clone()).fold(0.0, f64::max);
    let low = series.bars.iter().map(|bar| bar.begin as f64);
    let low = low.chain(acked.clone()).fold(0.0, f64::min);
    // A window that is much larger than what is sent would make that a line at the bottom.
    let edges = series.answers.iter().map(edge);
    let roof = edges.fold(high, f64::max).min(high + (high - low) * 0.5);
    let label = |place: &f64| units::count(*place);
    let mut chart = chart(area, duration, (low, roof, 0.04), "sequence number", &label)?;
    let window = series.answers.iter().map(|a| (a.time, edge(a)));
    line(&mut chart, window, true, EDGE.stroke_width(1))?;
    let blocks = |twice| {
        let blocks = series.blocks.iter();
        blocks
            .filter(move |block| block.is_duplicate == twice)
            .map(|block| (block.time, block.left, block.right))
    };
    // Pale, as one comes with each ACK and hides what is behind it.
    let pale = SACK.mix(0.4).stroke_width(1);
    bars(&mut chart, blocks(false), THIN, pale)?;
    bars(&mut chart, blocks(true), SEEN, TWICE.stroke_width(2))?;
    let answers = series.answers.iter().map(|a| (a.time, a.ack as f64));
    line(&mut chart, answers, true, ACK.stroke_width(1))?;
    for (kinds, color, least, width) in [
        (&[Kind::New, Kind::Probe][..], SENT, THIN, 1),
        (&[Kind::Late], LATE, SEEN, 3),
        (&[Kind::Again], AGAIN, SEEN, 3),
    ] {
        let of = series.bars.iter().filter(|bar| kinds.contains(&bar.kind));
        let of = of.map(|bar| (bar.time, bar.begin, bar.end));
        bars(&mut chart, of, least, color.stroke_width(width))?;
    }
    marks(&mut chart, series)?;
    let edge = match series.scale {
        Scale::Known(_) => "window edge",
        Scale::Unknown => "window edge, not scaled",
    };
    let mut names = vec![("segments", SENT)];
    let has = |kind| series.count(kind) > 0;
    names.extend(has(Kind::Again).then_some(("retransmissions", AGAIN)));
    names.extend(has(Kind::Late).then_some(("out of order", LATE)));
    names.extend([("acknowledged", ACK), (edge, EDGE)]);
    let twice = |of: &super::series::Block| of.is_duplicate;
    let is_twice = series.blocks.iter().any(twice);
    let is_sacked = !series.blocks.iter().all(twice);
    names.extend(is_sacked.then_some(("SACK blocks", SACK)));
    names.extend(is_twice.then_some(("D-SACK blocks", TWICE)));
    legend(&mut chart, &names, SeriesLabelPosition::UpperLeft)
}

/// Letters at what is worth one.
fn marks(chart: &mut Chart<'_, '_>, series: &Series) -> Drawn {
    let mut seen = HashSet::new();
    for mark in &series.marks {
        let (letter, color) = match mark.what {
            What::Syn => ("S", TEXT),
            What::Fin => ("F", TEXT),
            What::Reset => ("R", AGAIN),
            What::ZeroWindow => ("Z", EDGE),
            What::DuplicateAck => ("·", ACK),
        };
        let at = (seconds(mark.time), mark.place as f64);
        let (x, y) = chart.backend_coord(&at);
        let cell = if letter == "·" { 3 } else { CELL };
        if !seen.insert((x / cell, y / cell, letter)) {
            continue;
        }
        let pos = text_anchor::Pos::new(text_anchor::HPos::Center, text_anchor::VPos::Bottom);
        let style = ("sans-serif", 16).into_font().color(&color).pos(pos);
        let text = Text::new(letter, at, style);
        chart.draw_series([text]).map_err(said)?;
    }
    Ok(())
}

fn highest(all: &[Point]) -> f64 {
    all.iter().map(|point| point.1 as f64).fold(0.0, f64::max)
}

fn windows(area: &Area<'_>, series: &Series, duration: u64) -> Drawn {
    let flight = highest(&series.flight);
    let windows = series.answers.iter().map(|a| (a.time, a.window as f64));
    let window = windows.clone().map(|(_, bytes)| bytes).fold(0.0, f64::max);
    // As above: a window of megabytes says only that it was no limit.
    let high = match flight {
        0.0 => window,
        flight => flight.max(window.min(flight * 4.0)),
    };
    let label = |bytes: &f64| units::count(*bytes);
    let mut chart = chart(area, duration, (0.0, high, 0.35), "bytes", &label)?;
    line(&mut chart, windows, true, EDGE.stroke_width(1))?;
    let flight = series.flight.iter().map(|&(t, bytes)| (t, bytes as f64));
    line(&mut chart, flight, true, SENT.stroke_width(1))?;
    let window = match series.scale {
        Scale::Known(_) => "receive window",
        Scale::Unknown => "receive window, not scaled",
    };
    let names = [("in flight", SENT), (window, EDGE)];
    legend(&mut chart, &names, SeriesLabelPosition::UpperLeft)
}

fn round_trips(area: &Area<'_>, series: &Series, duration: u64) -> Drawn {
    let high = highest(&series.round_trips);
    let label = |ns: &f64| units::nanoseconds(*ns);
    let mut chart = chart(area, duration, (0.0, high, 0.05), "round trip", &label)?;
    points(&mut chart, &series.round_trips, ACK.filled())
}

fn throughput(area: &Area<'_>, series: &Series, duration: u64) -> Drawn {
    let high = highest(&series.throughput).max(highest(&series.goodput)) * 8.0;
    let label = |bits: &f64| units::count(*bits);
    let mut chart = chart(area, duration, (0.0, high, 0.35), "bit/s", &label)?;
    let bits = |all: &[Point]| -> Vec<(u64, f64)> {
        let all = all.iter();
        all.map(|&(time, bytes)| (time.min(duration), bytes as f64 * 8.0))
            .collect()
    };
    let sent = bits(&series.throughput).into_iter();
    line(&mut chart, sent, false, SENT.stroke_width(1))?;
    let acked = bits(&series.goodput).into_iter();
    line(&mut chart, acked, false, ACK.stroke_width(2))?;
    let each = units::nanoseconds(series.interval as f64);
    let sent = format!("sent, in each {each}");
    let names = [(sent.as_str(), SENT), ("goodput (acknowledged)", ACK)];
    legend(&mut chart, &names, SeriesLabelPosition::UpperLeft)
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
