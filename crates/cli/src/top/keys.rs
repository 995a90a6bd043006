//! What a key does to the view, and what it asks of the program.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::view::{Draft, Section, View};
use crate::show::Filter;

/// Longest filter, characters.
const FILTER_MAX: usize = 400;
/// Rows that a page key goes.
const PAGE: usize = 10;

/// What the program is to do, beside drawing anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    /// Stop as Ctrl-Z does.
    Suspend,
    /// Show the next stack.
    Next,
    /// Ask at another pace, or not at all.
    Pace,
    /// Another program may have written over the screen.
    Redraw,
}

/// The keys, for the help.
pub const HELP: [(&str, &str); 12] = [
    ("q, Esc, Ctrl-C", "quit (Esc first leaves help and section)"),
    ("Tab, Shift-Tab", "enlarge the next section, the one before"),
    ("1 to 5", "cores, threads, channels, drops, connections"),
    ("s", "sort connections by the next column"),
    ("r", "reverse the order"),
    ("/", "filter connections, in ss's words; empty: no filter"),
    ("p, Space", "pause: the stack is not asked meanwhile"),
    ("+, -", "longer, shorter interval"),
    ("n", "the next stack, where several run"),
    ("Up, Down, PgUp, PgDn", "scroll; Home goes back"),
    ("Ctrl-L, Ctrl-Z", "draw anew, suspend"),
    ("h, ?", "this help"),
];

/// A key was pressed.
pub fn press(view: &mut View, key: KeyEvent) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Action::Quit,
            KeyCode::Char('z') => return Action::Suspend,
            KeyCode::Char('l') => return Action::Redraw,
            KeyCode::Char('u') => {
                if let Some(draft) = &mut view.draft {
                    *draft = Draft::default();
                }
            }
            _ => {}
        }
        return Action::Nothing;
    }
    if view.draft.is_some() {
        type_filter(view, key.code);
        return Action::Nothing;
    }
    if view.has_help {
        view.has_help = false;
        return match key.code {
            KeyCode::Char('q') => Action::Quit,
            _ => Action::Nothing,
        };
    }
    command(view, key.code)
}

fn command(view: &mut View, code: KeyCode) -> Action {
    match code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Esc if view.enlarged.is_none() => return Action::Quit,
        KeyCode::Esc => {
            view.enlarged = None;
            view.passed = 0;
        }
        KeyCode::Tab => view.turn(true),
        KeyCode::BackTab => view.turn(false),
        KeyCode::Char(digit @ '1'..='5') => {
            let number = u32::from(digit) - u32::from('1');
            if let Some(section) = Section::ALL.get(number as usize) {
                view.enlarge(*section);
            }
        }
        KeyCode::Char('s') => view.reorder(),
        KeyCode::Char('r') => view.is_reversed = !view.is_reversed,
        KeyCode::Char('/') => {
            let text = view.words.clone();
            view.draft = Some(Draft { text, wrong: None });
        }
        KeyCode::Char('p' | ' ') => {
            view.is_paused = !view.is_paused;
            return Action::Pace;
        }
        KeyCode::Char('+' | '=') => {
            view.change_pace(true);
            return Action::Pace;
        }
        KeyCode::Char('-') => {
            view.change_pace(false);
            return Action::Pace;
        }
        KeyCode::Char('n') => return Action::Next,
        KeyCode::Char('h' | '?') => view.has_help = true,
        KeyCode::Up => view.passed = view.passed.saturating_sub(1),
        KeyCode::Down => view.passed = view.passed.saturating_add(1),
        KeyCode::PageUp => view.passed = view.passed.saturating_sub(PAGE),
        KeyCode::PageDown => view.passed = view.passed.saturating_add(PAGE),
        KeyCode::Home => view.passed = 0,
        _ => {}
    }
    Action::Nothing
}

/// A key while a filter is typed.
fn type_filter(view: &mut View, code: KeyCode) {
    let Some(draft) = &mut view.draft else {
        return;
    };
    match code {
        KeyCode::Char(c) if !c.is_control() && draft.text.chars().count() < FILTER_MAX => {
            draft.text.push(c);
            draft.wrong = None;
        }
        KeyCode::Backspace => {
            draft.text.pop();
            draft.wrong = None;
        }
        KeyCode::Esc => view.draft = None,
        KeyCode::Enter => match Filter::parse(std::slice::from_ref(&draft.text)) {
            Ok(filter) => {
                view.filter = filter;
                draft.text.trim().clone_into(&mut view.words);
                view.draft = None;
                view.passed = 0;
            }
            Err(why) => draft.wrong = Some(why),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::look::order::Order;

    fn view() -> View {
        View::new(
            Duration::from_secs(1),
            Order::Rate,
            Filter::default(),
            String::new(),
        )
    }

    fn type_in(view: &mut View, text: &str) -> Vec<Action> {
        let keys = text.chars().map(|c| match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        });
        keys.map(|code| press(view, code.into())).collect()
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut view = view();
        assert_eq!(type_in(&mut view, "q"), [Action::Quit]);
        assert_eq!(type_in(&mut view, "\u{1b}"), [Action::Quit]);
        assert_eq!(type_in(&mut view, "n"), [Action::Next]);
        type_in(&mut view, "2");
        assert_eq!(view.enlarged, Some(Section::Threads));
        assert_eq!(type_in(&mut view, "\u{1b}"), [Action::Nothing]);
        assert_eq!(view.enlarged, None);
        type_in(&mut view, "\t55sr");
        assert_eq!((view.enlarged, view.order), (None, Order::In));
        assert!(view.is_reversed);
        assert_eq!(type_in(&mut view, "p+"), [Action::Pace, Action::Pace]);
        assert!(view.is_paused && view.pace == Duration::from_secs(2));
        assert_eq!(type_in(&mut view, " -"), [Action::Pace, Action::Pace]);
        assert!(!view.is_paused && view.pace == Duration::from_secs(1));
        // Esc leaves the help first.
        assert_eq!(
            type_in(&mut view, "?\u{1b}h"),
            [Action::Nothing, Action::Nothing, Action::Nothing]
        );
        assert!(view.has_help);
        for (key, action) in [('c', Action::Quit), ('z', Action::Suspend)] {
            let key = KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
            assert_eq!(press(&mut view, key), action);
        }
        let mut released = KeyEvent::from(KeyCode::Char('q'));
        released.kind = KeyEventKind::Release;
        assert_eq!(press(&mut view, released), Action::Nothing);
    }

    #[test]
    fn a_filter_is_typed_mended_and_taken_back() {
        let mut view = view();
        type_in(&mut view, "/dport = :8x\n");
        let draft = view.draft.as_ref().expect("it is wrong and still there");
        assert!(draft.wrong.as_ref().is_some_and(|why| why.contains(":8x")));
        assert_eq!(view.filter, Filter::default());
        type_in(&mut view, "\u{8}0\n");
        assert!(view.draft.is_none());
        assert_eq!(view.words, "dport = :80");
        let filter = Filter::parse(&["dport = :80".to_owned()]).unwrap();
        assert_eq!(view.filter, filter);
        // `q` is a letter here, and Esc leaves all as it was.
        assert_eq!(type_in(&mut view, "/q\u{1b}"), [Action::Nothing; 3]);
        assert_eq!(view.filter, filter);
        type_in(&mut view, "/");
        press(
            &mut view,
            KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL),
        );
        type_in(&mut view, "\n");
        assert_eq!((view.filter, view.words.as_str()), (Filter::default(), ""));
    }

    #[test]
    fn a_filter_has_a_bound() {
        let mut view = view();
        type_in(&mut view, &format!("/{}", "(".repeat(100_000)));
        let draft = view.draft.as_ref().expect("it is typed");
        assert_eq!(draft.text.len(), FILTER_MAX);
        type_in(&mut view, "\n");
        assert!(view.draft.is_some_and(|draft| draft.wrong.is_some()));
    }
}
