//! Facts as text: JSON objects become aligned tables, names that end in a unit become headings and printed units.

mod columns;

use serde_json::{Map, Value};

use crate::{output::printable, units};
use columns::{WIDTH, layout, wrap};

/// Longest text in a table's cell, characters.
const CELL_MAX: usize = 400;

/// `facts` for a person. An array of objects is a table, an object a list of names and values.
///
/// No line is wider than [`WIDTH`].
pub fn render(facts: &Value) -> String {
    fitted(facts, WIDTH)
}

fn fitted(facts: &Value, fit: usize) -> String {
    match facts {
        Value::Array(rows) if rows.is_empty() => "(none)\n".to_owned(),
        Value::Array(rows) if rows.iter().all(Value::is_object) => {
            let rows: Vec<_> = rows.iter().filter_map(Value::as_object).collect();
            objects(&rows, fit)
        }
        Value::Array(rows) => rows.iter().map(|row| lines(row, fit)).collect(),
        Value::Object(fields) => fields_of(fields, fit),
        scalar => lines(scalar, fit),
    }
}

/// Names and values one behind the other, in lines that begin with `indent` spaces.
pub fn list<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, indent: usize) -> String {
    let fields = fields.map(|(name, value)| format!("{} {}", heading(name), cell(name, value)));
    let text = fields.collect::<Vec<_>>().join(", ");
    let margin = " ".repeat(indent);
    let lines = wrap(&text, WIDTH.saturating_sub(indent)).into_iter();
    lines
        .filter(|line| !line.is_empty())
        .map(|line| format!("{margin}{line}\n"))
        .collect()
}

/// One name and value, as [`list`] has them.
pub fn field(name: &str, value: &Value) -> (String, String) {
    (heading(name), cell(name, value))
}

/// A value in lines of its own.
fn lines(value: &Value, fit: usize) -> String {
    wrap(&cell("", value), fit).join("\n") + "\n"
}

/// Rows of text under `headings`: columns aligned, numbers to the right.
pub fn text(headings: &[&str], rows: &[Vec<String>]) -> String {
    fitting(headings, rows, WIDTH)
}

fn fitting(headings: &[&str], rows: &[Vec<String>], fit: usize) -> String {
    let right: Vec<bool> = (0..headings.len())
        .map(|i| {
            let mut filled = rows
                .iter()
                .filter_map(|row| row.get(i))
                .filter(|c| !is_blank(c))
                .peekable();
            filled.peek().is_some()
                && filled.all(|c| c.starts_with(|c: char| c.is_ascii_digit()) && is_number(c))
        })
        .collect();
    layout(headings, rows, &right, fit)
}

fn is_blank(cell: &str) -> bool {
    cell.is_empty() || cell == "-"
}

/// `12`, `1.5 KiB`, `53.5 k/s`; not `10.77.0.2` or `1500-9000`.
fn is_number(cell: &str) -> bool {
    cell.split(' ')
        .next()
        .is_some_and(|number| number.parse::<f64>().is_ok())
}

fn objects(rows: &[&Map<String, Value>], fit: usize) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let empty = Value::Null;
    // A row that brings its own unit (`value`, `unit`) is printed with it, and the column of units goes.
    if names.contains(&"value") {
        names.retain(|name| *name != "unit");
    }
    let headings: Vec<String> = names.iter().map(|name| heading(name)).collect();
    let value_cell = |row: &Map<String, Value>, value: &Value| {
        let text = |key| row.get(key).and_then(Value::as_str);
        match (text("unit"), text("name")) {
            (Some(unit), _) => with_unit(value, unit),
            // A setting or counter whose own name tells the unit.
            (None, Some(name)) => cell(name, value),
            (None, None) => cell("value", value),
        }
    };
    let of = |row: &Map<String, Value>, name: &str| {
        let value = row.get(name).unwrap_or(&empty);
        cut(if name == "value" {
            value_cell(row, value)
        } else {
            cell(name, value)
        })
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| names.iter().map(|name| of(row, name)).collect())
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    fitting(&headings, &cells, fit)
}

/// What a person still reads in a table; JSON has all of it.
fn cut(cell: String) -> String {
    if cell.chars().count() <= CELL_MAX {
        return cell;
    }
    cell.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

fn fields_of(fields: &Map<String, Value>, fit: usize) -> String {
    let mut out = String::new();
    let width = fields
        .keys()
        .map(|name| heading(name).chars().count())
        .max()
        .unwrap_or(0);
    let (nested, flat): (Vec<_>, Vec<_>) = fields.iter().partition(|(_, value)| is_table(value));
    for (name, value) in flat {
        let heading = heading(name);
        let pad = " ".repeat(width.saturating_sub(heading.chars().count()));
        let mut before = format!("{heading}{pad}  ");
        let beside = fit.saturating_sub(width + 2).max(1);
        for line in wrap(&cell(name, value), beside) {
            out.push_str(format!("{before}{line}").trim_end());
            out.push('\n');
            before = " ".repeat(width + 2);
        }
    }
    for (name, value) in nested {
        let table = fitted(value, fit.saturating_sub(2))
            .lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>();
        out.push_str(&format!("{}:\n{table}", heading(name)));
    }
    out
}

fn is_table(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(rows) => rows.iter().any(Value::is_object),
        _ => false,
    }
}

fn heading(name: &str) -> String {
    printable(units::of_name(name).map_or(name, |(rest, _)| rest)).replace('_', " ")
}

fn with_unit(value: &Value, unit: &str) -> String {
    match units::of_name(unit) {
        Some(_) => cell(unit, value),
        None => format!("{} {}", cell("", value), printable(unit))
            .trim_end()
            .to_owned(),
    }
}

/// One value, under `name`, which may tell its unit.
fn cell(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => printable(text),
        Value::Number(number) => match (units::of_name(name), number.as_f64()) {
            (Some((_, print)), Some(value)) => print(value),
            (None, Some(value)) if number.is_f64() => units::short(value, "").trim_end().to_owned(),
            _ => number.to_string(),
        },
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values
            .iter()
            .map(|value| cell(name, value))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Object(_) => printable(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::render;

    #[test]
    fn objects_become_columns() {
        let facts = json!([
            { "name": "tap:nc0", "mtu_bytes": 1500, "up": true, "peers": ["a", "b"] },
            { "name": "wire", "mtu_bytes": 65536, "drops": 12 },
        ]);
        let expected = "\
name          mtu  up   peers  drops
tap:nc0    1500 B  yes  a, b       -
wire     64.0 KiB  -    -         12
";
        assert_eq!(render(&facts), expected);
    }

    #[test]
    fn a_row_may_bring_its_unit() {
        let facts = json!([
            { "name": "rx", "value": 3, "unit": "packets" },
            { "name": "rx", "value": 2048, "unit": "bytes" },
            { "name": "x", "value": 7, "unit": "" },
        ]);
        assert_eq!(
            render(&facts),
            "name      value\nrx    3 packets\nrx       2048 B\nx             7\n"
        );
    }

    #[test]
    fn a_name_in_a_row_tells_the_unit() {
        let facts =
            json!([{ "name": "spin_ns", "value": 2500 }, { "name": "regime", "value": "giant" }]);
        assert_eq!(
            render(&facts),
            "name     value\nspin_ns  2.50 µs\nregime   giant\n"
        );
        let long = render(&json!([{ "info": "x".repeat(1000) }]));
        assert!(long.lines().all(|line| line.chars().count() <= 100));
        assert_eq!(long.matches('x').count(), 399, "a peer's text has a bound");
    }

    #[test]
    fn an_object_is_a_list_with_its_tables_below() {
        let facts =
            json!({ "regime": "giant", "up_s": 4, "links": [{ "name": "a" }], "cores": [0, 1] });
        assert_eq!(
            render(&facts),
            "regime  giant\nup      4.00 s\ncores   0, 1\nlinks:\n  name\n  a\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let words = "word ".repeat(60);
        let row = json!({ "name": "a", "note": words, "who": "y".repeat(150), "n_bytes": 7 });
        let facts =
            json!({ "list": ["z".repeat(150), words], "up_s": 4, "inner": { "rows": [row, row] } });
        for facts in [&facts, &json!([row, row]), &json!([words, [words]])] {
            let text = render(facts);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(100), "{widest:?}:\n{text}");
            let expected = facts.to_string().matches("word").count();
            assert_eq!(text.matches("word").count(), expected, "{text}");
        }
    }

    #[test]
    fn addresses_are_not_numbers() {
        let facts = json!([{ "address": "10.77.0.2", "n": 1 }, { "address": "10.7.0.2", "n": 10 }]);
        assert_eq!(
            render(&facts),
            "address     n\n10.77.0.2   1\n10.7.0.2   10\n"
        );
    }

    #[test]
    fn nothing_takes_the_terminal_over() {
        let facts = json!([{ "command\u{1b}[2J": "\u{1b}]0;title\u{7}x" }]);
        assert!(!render(&facts).contains(['\u{1b}', '\u{7}']));
        assert_eq!(render(&json!([])), "(none)\n");
        assert_eq!(render(&json!("x")), "x\n");
        assert_eq!(render(&json!([[1, 2], "x"])), "1, 2\nx\n");
    }
}
