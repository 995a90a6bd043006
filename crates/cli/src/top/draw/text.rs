//! Lines of text in a buffer of cells, and back.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};

/// Of a screen's numbers.
pub fn narrow(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Puts a line, and gives the rest of the room.
pub fn put(buf: &mut Buffer, area: Rect, text: &str, style: Style) -> Rect {
    if area.is_empty() {
        return area;
    }
    buf.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    }
}

/// The text of a buffer, without the blanks at the ends of its lines.
pub fn lines(buf: &Buffer) -> Vec<String> {
    let line = |y: u16| {
        let mut text = String::new();
        let mut x = buf.area.left();
        while x < buf.area.right() {
            let symbol = buf[(x, y)].symbol();
            text.push_str(symbol);
            // A wide character covers the cell behind it.
            x += narrow(Line::from(symbol).width().max(1));
        }
        text.trim_end().to_owned()
    };
    (buf.area.top()..buf.area.bottom()).map(line).collect()
}
