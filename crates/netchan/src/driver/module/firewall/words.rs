//! A file of rules as words, each with its place; and what is wrong with one.

use std::{fmt, iter::Peekable, str::CharIndices};

/// A file of rules at most, bytes.
pub const TEXT_MAX: usize = 1 << 20;

/// What is wrong with a file of rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The word there; empty at the end of the file.
    pub word: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, .. } = self;
        match &*self.word {
            "" => write!(f, "{line}:{column}: at the end: {}", self.what),
            "\n" => write!(f, "{line}:{column}: at the end of the line: {}", self.what),
            word => {
                let word = word.escape_debug().to_string().replace("\\\"", "\"");
                write!(f, "{line}:{column}: `{word}`: {}", self.what)
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A word or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    /// It stood between quotation marks.
    pub is_quoted: bool,
    pub line: usize,
    pub column: usize,
    /// Where it begins and ends in the file, bytes.
    pub span: (usize, usize),
}

impl Word {
    /// Whether this sign or bare word stands here.
    pub fn is(&self, text: &str) -> bool {
        !self.is_quoted && self.text == text
    }

    /// Whether a statement ends here: `;` or the end of a line.
    pub fn ends(&self) -> bool {
        self.is(";") || self.is("\n")
    }

    /// What is wrong with it.
    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault {
            line: self.line,
            column: self.column,
            word: match self.is_quoted {
                true => format!("\"{}\"", self.text),
                false => self.text.clone(),
            },
            what: what.into(),
        }
    }
}

/// Whether a character belongs to a bare word: names, numbers, addresses, ranges.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:[]*@$+%".contains(c)
}

/// The words of a file, and a last, empty one. Comments and blanks are left out; the end of a line is a word.
///
/// # Errors
/// A character that stands in no word, a quotation that does not end, too much of it.
pub fn split(text: &str) -> Result<Vec<Word>, Fault> {
    let mut splitter = Splitter {
        text,
        letters: text.char_indices().peekable(),
        line: 1,
        column: 1,
        words: Vec::new(),
    };
    if text.len() > TEXT_MAX {
        let word = splitter.word((1, 1), (0, 0));
        return Err(word.fault(format!("more than {TEXT_MAX} bytes")));
    }
    while splitter.step()? {}
    let end = splitter.word((splitter.line, splitter.column), (text.len(), text.len()));
    splitter.words.push(end);
    Ok(splitter.words)
}

struct Splitter<'a> {
    text: &'a str,
    letters: Peekable<CharIndices<'a>>,
    line: usize,
    column: usize,
    words: Vec<Word>,
}

impl Splitter<'_> {
    /// The bare word that begins at a line and column, and lies there in the file.
    fn word(&self, (line, column): (usize, usize), span: (usize, usize)) -> Word {
        Word {
            text: self.text.get(span.0..span.1).unwrap_or_default().to_owned(),
            is_quoted: false,
            line,
            column,
            span,
        }
    }

    /// Takes the letters that `are` so; where they end.
    fn run(&mut self, mut to: usize, are: impl Fn(char) -> bool) -> usize {
        while let Some((at, next)) = self.letters.next_if(|next| are(next.1)) {
            self.column += 1;
            to = at + next.len_utf8();
        }
        to
    }

    fn next_line(&mut self) {
        (self.line, self.column) = (self.line + 1, 1);
    }

    /// Takes a word, or what is between words. False: it is over.
    fn step(&mut self) -> Result<bool, Fault> {
        let begin = (self.line, self.column);
        let Some((from, c)) = self.letters.next() else {
            return Ok(false);
        };
        self.column += 1;
        let after = from + c.len_utf8();
        let to = match c {
            ' ' | '\t' | '\r' => return Ok(true),
            '\n' => {
                self.next_line();
                after
            }
            // A line that goes on.
            '\\' if self.letters.next_if(|next| next.1 == '\n').is_some() => {
                self.next_line();
                return Ok(true);
            }
            '#' => {
                self.run(after, |c| c != '\n');
                return Ok(true);
            }
            '"' => {
                let word = self.quoted(begin, from)?;
                self.words.push(word);
                return Ok(true);
            }
            _ if is_of_word(c) => self.run(after, is_of_word),
            '!' | '=' if self.letters.next_if(|next| next.1 == '=').is_some() => {
                self.column += 1;
                after + 1
            }
            '{' | '}' | '(' | ')' | ';' | ',' | '=' | '&' | '|' | '<' | '>' | '!' | '^' => after,
            _ => return Err(self.word(begin, (from, after)).fault("no word begins so")),
        };
        let word = self.word(begin, (from, to));
        self.words.push(word);
        Ok(true)
    }

    /// What stands between quotation marks, behind the first.
    fn quoted(&mut self, begin: (usize, usize), from: usize) -> Result<Word, Fault> {
        let to = self.run(from + 1, |c| c != '"' && c != '\n');
        if self.letters.next_if(|next| next.1 == '"').is_none() {
            let word = self.word(begin, (from, to));
            return Err(word.fault("the quotation does not end on its line"));
        }
        self.column += 1;
        let mut word = self.word(begin, (from + 1, to));
        (word.is_quoted, word.span) = (true, (from, to + 1));
        Ok(word)
    }
}
