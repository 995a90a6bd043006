//! The terminal as a screen: taken at the start, given back however the program ends or is stopped.

use std::io;

use ratatui::{
    DefaultTerminal,
    buffer::Buffer,
    crossterm::{
        execute,
        terminal::{EnterAlternateScreen, enable_raw_mode},
    },
    layout::{Position, Rect},
};
use rustix::process::{Signal, getpid, kill_process};

/// The whole terminal, on its second screen. Dropped, it is as it was; a panic gives it back before it speaks.
pub struct Screen(DefaultTerminal);

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// There is no terminal.
    pub fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| give_back())?;
        Ok(Self(terminal))
    }

    /// The next frame. Only what has changed is written.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer, Rect)) -> io::Result<()> {
        self.0.draw(|frame| {
            let area = frame.area();
            paint(frame.buffer_mut(), area);
        })?;
        Ok(())
    }

    /// Writes all of the next frame.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`, which asks the terminal where its cursor is: keys would be lost, and some terminals do not answer.
        let size = self.0.size()?;
        self.0.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Gives the terminal back, stops the process as Ctrl-Z does, and takes the terminal again once the process goes on.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.0.show_cursor()?;
        give_back();
        kill_process(getpid(), Signal::STOP)?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.0.show_cursor();
        give_back();
    }
}

fn give_back() {
    let _ = ratatui::try_restore();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Terminal;

    /// Set for the child alone.
    const CHILD: &str = "NETCHAN_TOP_PANICS";

    #[test]
    fn the_child_panics() {
        if std::env::var_os(CHILD).is_some() {
            let mut screen = Screen::enter().unwrap();
            screen
                .draw(|buf, _| buf.set_style(Rect::new(0, 0, 1, 1), ratatui::style::Color::Red))
                .unwrap();
            panic!("in the middle of a frame");
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let own = std::env::current_exe().unwrap();
        let prepare = |command: &mut std::process::Command| {
            let name = "top::screen::tests::the_child_panics";
            command.args(["--exact", name]).env(CHILD, "1");
        };
        let mut terminal = Terminal::start(&own, prepare, (80, 24));
        assert!(!terminal.ended().success());
        let written = String::from_utf8_lossy(&terminal.written).into_owned();
        assert!(written.contains("\u{1b}[?1049h"), "{written}");
        assert!(terminal.is_given_back(), "{written}");
    }
}
