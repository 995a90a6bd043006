//! Pictures of made connections: well-formed, of the right size, bounded.

use super::{
    super::{connections::Side, made::Made},
    *,
};

fn made(segments: u32) -> Made {
    let mut made = Made::begun(1, 2, [Some(7); 2]);
    for i in 0..segments {
        let us = 20_000 + u64::from(i) * 100;
        made.sent(us, 1 + i * 1000, 1000);
        if i % 10 == 3 {
            made.sent(us + 50, 1 + (i - 2) * 1000, 1000);
        }
        let header = made.acked(us + 90, 1 + i * 1000);
        header.add_sack((3 + i * 1000, 500 + i * 1000));
    }
    made
}

fn drawn(made: &Made, sides: &[Side]) -> String {
    let directions: Vec<_> = sides.iter().map(|side| made.direction(*side)).collect();
    let notes = ["<script>&\u{1b}\u{ffff}\"".to_owned(), "x".repeat(1000)];
    let column = |one| -> Column<'_> {
        let one: &super::super::direction::Direction = one;
        Column {
            title: one.title(),
            facts: one.line(),
            notes: &notes,
            series: &one.series,
            duration: one.duration,
        }
    };
    let columns: Vec<_> = directions.iter().map(column).collect();
    svg(&columns).expect("drawn")
}

/// Elements of this name.
fn count(svg: &str, name: &str) -> usize {
    svg.matches(&format!("<{name} ")).count()
}

#[test]
fn picture_is_xml_with_everything_in_it() {
    let svg = drawn(&made(100), &[Side::Client]);
    let options = resvg::usvg::roxmltree::ParsingOptions::default();
    let parsed = resvg::usvg::roxmltree::Document::parse_with_options(&svg, options);
    let parsed = parsed.expect("XML");
    assert_eq!(parsed.root_element().attribute("width"), Some("1200"));
    for text in [
        "client 10.0.0.1:40000",
        "retransmissions",
        "SACK blocks",
        "window edge",
        "goodput",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script"));
    assert!(!svg.contains(['\u{1b}', '\u{ffff}']) && !svg.contains(&"x".repeat(200)));
}

#[test]
fn png_has_the_size_of_the_picture() {
    let svg = drawn(&made(50), &[Side::Client, Side::Server]);
    let png = png(&svg).expect("made");
    let pixels = resvg::tiny_skia::Pixmap::decode_png(&png).expect("a PNG");
    let height = HEAD + HEIGHTS.iter().sum::<u32>();
    assert_eq!((pixels.width(), pixels.height()), (4 * WIDTH, 2 * height));
    // There is text, and there are bars: dark pixels above the charts, blue ones in them.
    let is_there = |from: u32, to: u32, is: &dyn Fn(u8, u8, u8) -> bool| {
        let rows = (from * 4 * WIDTH) as usize..(to * 4 * WIDTH) as usize;
        pixels.pixels()[rows]
            .iter()
            .any(|pixel| is(pixel.red(), pixel.green(), pixel.blue()))
    };
    assert!(is_there(0, 2 * HEAD, &|r, g, b| r < 90
        && g < 90
        && b < 110));
    assert!(is_there(2 * HEAD, height, &|r, g, b| b > 200
        && r < 90
        && g < 140));
}

#[test]
fn size_depends_on_pixels_not_on_segments() {
    let few = drawn(&made(3_000), &[Side::Client]).len();
    let many = drawn(&made(60_000), &[Side::Client]).len();
    assert!(many < 3 * few, "{few} and {many} bytes");
}

#[test]
fn what_has_nothing_to_draw_is_drawn() {
    let mut one = Made::new(1, 2);
    one.acked(0, 5);
    for side in [Side::Client, Side::Server] {
        let svg = drawn(&one, &[side]);
        assert!(count(&svg, "text") > 10);
    }
    let mut far = Made::begun(1, 2, [Some(14); 2]);
    far.acked(u64::MAX / 2, 1).window = u16::MAX;
    drawn(&far, &[Side::Client]);
}
