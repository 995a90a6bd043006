//! How fast counters grow between two looks.

use std::collections::HashMap;

use netchan::control::Stack;
use serde_json::{Value, json};

use crate::units::now_ns;

/// How much a counter grew in a second. `None`: it is smaller than before, so that it began anew; or no time has passed.
pub fn per_second(before: u64, now: u64, seconds: f64) -> Option<f64> {
    let grown = now.checked_sub(before)?;
    (seconds > 0.0).then(|| grown as f64 / seconds) // precision: a rate
}

/// Counters as they were at the last look.
#[derive(Default)]
pub struct Sample {
    at: u64,
    values: HashMap<(String, String), u64>,
}

impl Sample {
    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The next look: each row of `facts`, of one of `stacks` or of all by id, learns how much it grew in a second since the last one.
    pub fn take(&mut self, stacks: &[Stack], facts: &mut Value) {
        let now = now_ns();
        let seconds = now.saturating_sub(self.at) as f64 / 1e9; // precision: a rate
        let mut values = HashMap::new();
        let mut each = |stack: &str, rows: &mut Value| {
            for row in rows.as_array_mut().into_iter().flatten() {
                let name = row
                    .get("name")
                    .or_else(|| row.get("reason"))
                    .and_then(Value::as_str);
                let (Some(name), Some(value)) = (name, row.get("value").and_then(Value::as_u64))
                else {
                    continue;
                };
                let key = (stack.to_owned(), name.to_owned());
                let before = self.values.get(&key);
                // A counter that was not there was zero; one that is smaller is another stack's.
                let before = before.copied().unwrap_or_default();
                if !self.values.is_empty() && seconds > 0.0 {
                    let rate = per_second(before, value, seconds).unwrap_or_default();
                    let rate = json!((rate * 10.0).round() / 10.0);
                    if let Some(row) = row.as_object_mut() {
                        row.shift_insert(2.min(row.len()), "rate_per_s".to_owned(), rate);
                    }
                }
                values.insert(key, value);
            }
        };
        match (facts, stacks) {
            (rows @ Value::Array(_), [only]) => each(&only.id, rows),
            (Value::Object(all), _) => all.iter_mut().for_each(|(id, rows)| each(id, rows)),
            _ => {}
        }
        (self.at, self.values) = (now, values);
    }
}
