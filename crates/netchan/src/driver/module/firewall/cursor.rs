//! A place among the words of a file of rules.

use super::words::{Fault, Word};

/// Reads word by word.
pub struct Cursor {
    words: Vec<Word>,
    at: usize,
}

impl Cursor {
    /// At the first of the words, of which the last is the empty one.
    pub const fn new(words: Vec<Word>) -> Self {
        Self { words, at: 0 }
    }

    /// The word here.
    pub fn here(&self) -> &Word {
        &self.words[self.at.min(self.words.len() - 1)]
    }

    /// The word before the one here.
    pub fn last(&self) -> &Word {
        &self.words[self.at.saturating_sub(1)]
    }

    /// Whether the words are over.
    pub fn is_over(&self) -> bool {
        self.at + 1 >= self.words.len()
    }

    /// Takes the word here.
    pub fn take(&mut self) -> Word {
        let word = self.here().clone();
        self.at += usize::from(!self.is_over());
        word
    }

    /// Takes the word here if it is this one.
    pub fn take_if(&mut self, text: &str) -> bool {
        let is = self.here().is(text);
        self.at += usize::from(is);
        is
    }

    /// Takes this word.
    ///
    /// # Errors
    /// Another stands here; `so` says what would be right.
    pub fn want(&mut self, text: &str, so: &str) -> Result<(), Fault> {
        match self.take_if(text) {
            true => Ok(()),
            false => Err(self.here().fault(format!("`{text}` is missing; {so}"))),
        }
    }

    /// Goes over ends of lines and `;`.
    pub fn skip_ends(&mut self) {
        while self.here().ends() {
            self.at += 1;
        }
    }

    /// Goes over ends of lines, where words may be spread over several.
    pub fn skip_lines(&mut self) {
        while self.here().is("\n") {
            self.at += 1;
        }
    }

    /// Takes the end of a statement, as nftables wants it, before a `}` too.
    ///
    /// # Errors
    /// Another word stands here.
    pub fn want_end(&mut self) -> Result<(), Fault> {
        if self.here().ends() {
            self.at += 1;
            return Ok(());
        }
        let here = self.here();
        Err(here.fault("a `;` or the end of the line is missing before it"))
    }
}

/// One of a list of words.
///
/// # Errors
/// It is none; the words are listed.
pub fn named<T: Copy>(word: &Word, names: &[(&str, T)]) -> Result<T, Fault> {
    let found = names.iter().find(|(name, _)| word.is(name));
    found.map(|found| found.1).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        word.fault(format!("it is none of {}", names.join(", ")))
    })
}
