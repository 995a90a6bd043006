//! Which section gets which part of the screen.

use ratatui::layout::Rect;

use super::text::narrow;
use crate::top::view::Section;

/// From this width on two columns of sections stand above the connections.
const WIDE: u16 = 120;
/// Headings and a row: with less a section says nothing.
const LEAST: usize = 2;
/// Of the connections: title, headings, two rows.
const CONNECTIONS_LEAST: usize = 4;

/// How many lines each section could use, its headings among them; 0: it has nothing to say.
pub type Wants = [usize; 5];

/// Where each section that has room stands. The connections get at least half of the room where they need it, and what no other needs.
pub fn places(area: Rect, wants: Wants) -> Vec<(Section, Rect)> {
    let [cores, threads, channels, drops, connections] = wants;
    let height = usize::from(area.height);
    let least = connections.min((height / 2).max(CONNECTIONS_LEAST));
    let above = height.saturating_sub(least);
    let mut places = Vec::new();
    let is_wide = area.width >= WIDE;
    let columns: &[(&[Section], &[usize])] = if is_wide {
        &[
            (&[Section::Cores, Section::Threads], &[cores, threads]),
            (&[Section::Channels, Section::Drops], &[channels, drops]),
        ]
    } else {
        &[(&Section::ALL[..4], &[cores, threads, channels, drops])]
    };
    let half = area.width / 2;
    let mut used = 0;
    for (number, (sections, wants)) in columns.iter().enumerate() {
        let (x, width) = match (is_wide, number) {
            (false, _) => (area.x, area.width),
            // A line's worth of space between the two.
            (true, 0) => (area.x, half - 1),
            (true, _) => (area.x + half + 1, area.width - half - 1),
        };
        let mut y = 0;
        for (section, lines) in sections.iter().zip(share(above, wants)) {
            if lines > 0 {
                let top = area.y + narrow(y);
                places.push((*section, Rect::new(x, top, width, narrow(lines))));
            }
            y += lines;
        }
        used = used.max(y);
    }
    if connections > 0 {
        let below = narrow(used.min(height));
        let rest = Rect {
            y: area.y + below,
            height: area.height - below,
            ..area
        };
        places.push((Section::Connections, rest));
    }
    places
}

/// Divides `room` lines: each gets its least, in this order, then one line more in turn.
fn share(room: usize, wants: &[usize]) -> Vec<usize> {
    let mut left = room;
    let mut lines: Vec<usize> = (wants.iter())
        .map(|want| {
            let least = LEAST.min(*want);
            let gets = if least <= left { least } else { 0 };
            left -= gets;
            gets
        })
        .collect();
    loop {
        let mut grew = false;
        for (lines, want) in lines.iter_mut().zip(wants) {
            if left > 0 && *lines > 0 && *lines < *want {
                *lines += 1;
                left -= 1;
                grew = true;
            }
        }
        if !grew {
            return lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared() {
        assert_eq!(share(20, &[2, 5, 3, 0]), [2, 5, 3, 0]);
        assert_eq!(share(8, &[2, 9, 9, 0]), [2, 3, 3, 0]);
        assert_eq!(share(5, &[2, 9, 9, 9]), [2, 3, 0, 0]);
        assert_eq!(share(1, &[2, 9]), [0, 0]);
    }

    #[test]
    fn sections_cover_no_line_twice_and_stay_inside() {
        for (width, height) in [(40, 6), (80, 21), (200, 57), (120, 4), (1, 1), (0, 0)] {
            for wants in [[2, 8, 5, 3, 900], [0, 0, 0, 0, 2], [9, 99, 99, 99, 99]] {
                let area = Rect::new(0, 3, width, height);
                let places = places(area, wants);
                for (i, (section, place)) in places.iter().enumerate() {
                    assert_eq!(area.intersection(*place), *place, "{section:?} {place:?}");
                    for (_, other) in &places[..i] {
                        assert!(!place.intersects(*other), "{place:?} {other:?}");
                    }
                }
                let last = places.last().map(|(section, _)| *section);
                assert_eq!(last, Some(Section::Connections));
            }
        }
    }
}
