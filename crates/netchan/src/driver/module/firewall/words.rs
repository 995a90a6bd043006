//! A file of rules as words, each with its place; and what is wrong with one.

use std::fmt;

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
    let mut words = Vec::new();
    let mut letters = text.char_indices().peekable();
    let (mut line, mut column) = (1, 1);
    let place = |line, column, from: usize, to: usize, text: &str| Word {
        text: text.to_owned(),
        is_quoted: false,
        line,
        column,
        span: (from, to),
    };
    if text.len() > TEXT_MAX {
        return Err(place(1, 1, 0, 0, "").fault(format!("more than {TEXT_MAX} bytes")));
    }
    while let Some((from, c)) = letters.next() {
        let begin = (line, column);
        column += 1;
        let mut to = from + c.len_utf8();
        match c {
            ' ' | '\t' | '\r' => continue,
            '\n' => {
                words.push(place(begin.0, begin.1, from, to, "\n"));
                (line, column) = (line + 1, 1);
                continue;
            }
            // A line that goes on.
            '\\' if letters.next_if(|next| next.1 == '\n').is_some() => {
                (line, column) = (line + 1, 1);
                continue;
            }
            '#' => {
                while letters.next_if(|next| next.1 != '\n').is_some() {}
                continue;
            }
            '"' => {
                let mut is_over = false;
                while let Some((at, inner)) = letters.next_if(|next| next.1 != '\n') {
                    column += 1;
                    to = at + inner.len_utf8();
                    if inner == '"' {
                        is_over = true;
                        break;
                    }
                }
                let end = to - usize::from(is_over);
                let whole = text.get(from + 1..end).unwrap_or_default();
                let mut word = place(begin.0, begin.1, from, to, whole);
                if !is_over {
                    word.text.insert(0, '"');
                    return Err(word.fault("the quotation does not end on its line"));
                }
                word.is_quoted = true;
                words.push(word);
                continue;
            }
            _ if is_of_word(c) => {
                while let Some((at, next)) = letters.next_if(|next| is_of_word(next.1)) {
                    column += 1;
                    to = at + next.len_utf8();
                }
            }
            '!' | '=' if letters.next_if(|next| next.1 == '=').is_some() => {
                column += 1;
                to += 1;
            }
            '{' | '}' | '(' | ')' | ';' | ',' | '=' | '&' | '|' | '<' | '>' | '!' | '^' => {}
            other => {
                let word = place(begin.0, begin.1, from, to, &other.to_string());
                return Err(word.fault("no word begins so"));
            }
        }
        let whole = text.get(from..to).unwrap_or_default();
        words.push(place(begin.0, begin.1, from, to, whole));
    }
    words.push(place(line, column, text.len(), text.len(), ""));
    Ok(words)
}
