//! Columns that fit a line of the screen: those that matter least go first, names are cut, numbers are not.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::text::narrow;

/// A column.
pub struct Column {
    pub title: String,
    /// Numbers stand to the right and are never cut.
    pub is_number: bool,
    /// That with the largest leaves first; 0 stays.
    pub rank: u8,
    /// A name is cut to this where there is no room.
    pub least: usize,
    /// Of a name that is cut the end matters too: an address has its port there.
    pub keeps_end: bool,
}

impl Column {
    pub fn name(title: impl Into<String>, rank: u8, least: usize) -> Self {
        Self {
            title: title.into(),
            is_number: false,
            rank,
            least,
            keeps_end: false,
        }
    }

    pub fn address(title: &str, rank: u8) -> Self {
        Self {
            keeps_end: true,
            ..Self::name(title, rank, 15)
        }
    }

    /// At least as wide as `least`, so that columns stay where they are while numbers change.
    pub fn number(title: &str, rank: u8, least: usize) -> Self {
        Self {
            is_number: true,
            ..Self::name(title, rank, least)
        }
    }
}

/// A cell's text and how it looks.
pub struct Cell(pub String, pub Style);

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(text, Style::new())
    }
}

/// Headings in the first line, rows below; rows that do not fit are left out.
pub fn draw(buf: &mut Buffer, area: Rect, columns: &[Column], rows: &[Vec<Cell>]) {
    if area.is_empty() {
        return;
    }
    let room = usize::from(area.width);
    let rows = &rows[..rows.len().min(usize::from(area.height) - 1)];
    let gap = if room >= 100 { 2 } else { 1 };
    let widths = widths(columns, rows, room, gap);
    let head = Style::new().add_modifier(Modifier::REVERSED);
    buf.set_style(Rect { height: 1, ..area }, head);
    let titles = columns.iter().map(|c| (c.title.as_str(), head)).collect();
    let cells = rows.iter().map(|row| {
        let cells = row.iter().map(|Cell(text, style)| (text.as_str(), *style));
        cells.collect::<Vec<_>>()
    });
    for (row, y) in [titles].into_iter().chain(cells).zip(area.y..) {
        let mut x = area.x;
        for ((column, width), (text, style)) in columns.iter().zip(&widths).zip(row) {
            let Some(width) = *width else {
                continue;
            };
            let text = cut(text, width, column.keeps_end);
            let pad = match column.is_number {
                true => width.saturating_sub(text.chars().count()),
                false => 0,
            };
            let (at, step) = (narrow(pad), narrow(width + gap));
            buf.set_stringn(x.saturating_add(at), y, &text, width - pad, style);
            x = x.saturating_add(step).min(area.right());
        }
    }
}

/// How wide each column is; `None`: it is left out.
fn widths(columns: &[Column], rows: &[Vec<Cell>], room: usize, gap: usize) -> Vec<Option<usize>> {
    let needs = |i: usize, column: &Column| {
        let cells = rows.iter().filter_map(|row| row.get(i));
        let cells = cells.map(|Cell(text, _)| text.chars().count());
        let own = column.title.chars().count();
        let own = own.max(if column.is_number { column.least } else { 0 });
        cells.max().unwrap_or(0).max(own)
    };
    let full: Vec<usize> = (columns.iter().enumerate())
        .map(|(i, column)| needs(i, column))
        .collect();
    let least = |i: usize| match columns[i].is_number {
        true => full[i],
        false => full[i].min(columns[i].least),
    };
    let mut widths: Vec<Option<usize>> = (0..columns.len()).map(|i| Some(least(i))).collect();
    let total = |widths: &[Option<usize>]| {
        let kept: Vec<usize> = widths.iter().flatten().copied().collect();
        kept.iter().sum::<usize>() + gap * kept.len().saturating_sub(1)
    };
    while total(&widths) > room {
        let kept = (0..columns.len()).filter(|&i| widths[i].is_some() && columns[i].rank > 0);
        match kept.max_by_key(|&i| columns[i].rank) {
            Some(last) => widths[last] = None,
            None => break,
        }
    }
    // What is left goes to the names that were cut, those that matter most first.
    let mut names: Vec<usize> = (0..columns.len())
        .filter(|&i| widths[i].is_some())
        .collect();
    names.sort_by_key(|&i| columns[i].rank);
    for i in names {
        let left = room.saturating_sub(total(&widths));
        let has = widths[i].unwrap_or(0);
        widths[i] = Some(full[i].min(has + left));
    }
    widths
}

/// `text` in `width` characters.
fn cut(text: &str, width: usize, keeps_end: bool) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end = if keeps_end { width / 2 } else { 0 };
    let begin = text.chars().take(width.saturating_sub(end + 1));
    let end = text.chars().skip(length - end);
    begin.chain(['…']).chain(end).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column::name("state", 2, 5),
            Column::address("remote", 0),
            Column::number("in", 1, 6),
            Column::number("cwnd", 3, 6),
        ]
    }

    fn lines(width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        let row = |state: &str, remote: &str, number: &str, cwnd: &str| {
            let cells = [state, remote, number, cwnd];
            cells.map(|text| Cell::from(text.to_owned())).into()
        };
        let rows = [
            row("ESTAB", "[fd77:1:2:3:4:5:6:7]:65535", "12 k", "3"),
            row("ESTAB", "10.0.0.1:80", "7", "4"),
        ];
        draw(&mut buf, area, &columns(), &rows);
        crate::top::draw::lines(&buf)
    }

    #[test]
    fn columns_leave_and_names_are_cut() {
        assert_eq!(
            lines(60, 3),
            [
                "state remote                         in   cwnd",
                "ESTAB [fd77:1:2:3:4:5:6:7]:65535   12 k      3",
                "ESTAB 10.0.0.1:80                     7      4",
            ]
        );
        // The least of the name fits beside all numbers.
        assert_eq!(
            lines(35, 3),
            [
                "state remote              in   cwnd",
                "ESTAB [fd77:1…]:65535   12 k      3",
                "ESTAB 10.0.0.1:80          7      4",
            ]
        );
        assert_eq!(
            lines(34, 2),
            [
                "state remote                    in",
                "ESTAB [fd77:1:2:…6:7]:65535   12 k",
            ]
        );
        assert_eq!(
            lines(24, 2),
            ["remote                in", "[fd77:1:…7]:65535   12 k"]
        );
    }

    #[test]
    fn any_size_is_drawn() {
        for width in 0..70 {
            for height in 0..5 {
                let drawn = lines(width, height);
                assert_eq!(drawn.len(), usize::from(height));
            }
        }
    }
}
