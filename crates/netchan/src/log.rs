//! What the stack tells people of by itself: events of `tracing`, and a small subscriber that writes them as lines.
//!
//! An event goes to whatever subscriber the program has installed, and nowhere if there is none. The target is `netchan::` and the part of the
//! stack; what the sentence says of links, threads and numbers is in fields, too.
//!
//! [`install`] writes as `netchan run` does. It is made for processes that are not its own: a line is one write, it keeps nothing in
//! a thread's memory (tracing-subscriber's formatter does, and the threads of a foreign program end as they please), and it takes
//! no lock.

use std::fmt::{self, Write};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// How much is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors: what does not work any more.
    Quiet,
    /// Warnings too, and when it works again.
    #[default]
    Usual,
    /// All, each line with level, target and fields behind it.
    Verbose,
}

impl Verbosity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Quiet, Self::Usual, Self::Verbose];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Usual => "usual",
            Self::Verbose => "verbose",
        }
    }

    /// The one that is written so.
    #[must_use]
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    const fn most(self) -> LevelFilter {
        match self {
            Self::Quiet => LevelFilter::ERROR,
            Self::Usual => LevelFilter::INFO,
            Self::Verbose => LevelFilter::DEBUG,
        }
    }
}

/// Hands the stack's events to `write` from now on, each as one line with its line feed: `netchan: ` and the event's sentence. False: this
/// process has a subscriber already, and keeps it.
///
/// `write` is called by whatever thread had something to tell, a link's or an application's in a socket call: it should not wait, and must
/// make no call of netchan's.
pub fn install(verbosity: Verbosity, write: impl Fn(&str) + Send + Sync + 'static) -> bool {
    tracing::subscriber::set_global_default(Lines::new(verbosity, write)).is_ok()
}

/// The subscriber.
pub(crate) struct Lines<W> {
    verbosity: Verbosity,
    write: W,
}

impl<W: Fn(&str) + Send + Sync + 'static> Lines<W> {
    pub(crate) const fn new(verbosity: Verbosity, write: W) -> Self {
        Self { verbosity, write }
    }
}

impl<W: Fn(&str) + Send + Sync + 'static> Subscriber for Lines<W> {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        let rest = of.target().strip_prefix("netchan");
        let is_ours = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        is_ours && *of.level() <= self.verbosity.most()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.verbosity.most())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        (self.write)(&line.text(event.metadata(), self.verbosity));
    }

    // The stack has no spans.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event as it is read.
#[derive(Default)]
struct Line {
    sentence: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.sentence, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Line {
    fn text(&self, of: &Metadata<'_>, verbosity: Verbosity) -> String {
        let about = match verbosity {
            Verbosity::Verbose => {
                let level = level(*of.level());
                format!(" ({level} {}{})", of.target(), self.fields)
            }
            _ => String::new(),
        };
        // Names come from elsewhere, and the line may go to a terminal.
        let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let line = format!("netchan: {}{about}", self.sentence);
        line.chars().map(visible).chain(['\n']).collect()
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is written of a few events, and of others' ones.
    fn written(verbosity: Verbosity) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        let subscriber = Lines::new(verbosity, move |line: &str| {
            into.lock().unwrap().push(line.to_owned());
        });
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "netchan::link", link = "tap:nc0", "tap:nc0: \u{1b}[2J is gone");
            tracing::warn!(target: "netchan", "be\nware");
            tracing::info!(target: "netchan::watch", shard = 3, "shard {} is turned again", 3);
            tracing::debug!(target: "netchan::link", "a wire's other end was dropped");
            tracing::trace!(target: "netchan::link", "more than anybody reads");
            tracing::error!(target: "netchannel", "another's");
            tracing::error!(target: "netchan::log", "an error");
        });
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    #[test]
    fn each_verbosity_writes_what_it_says() {
        let quiet = written(Verbosity::Quiet);
        assert_eq!(quiet[0], "netchan: tap:nc0: \u{fffd}[2J is gone\n");
        assert_eq!(quiet.len(), 2, "{quiet:?}");
        let usual = written(Verbosity::Usual);
        assert_eq!(usual[1], "netchan: be\u{fffd}ware\n");
        assert_eq!(usual[2], "netchan: shard 3 is turned again\n");
        assert_eq!(usual.len(), 4, "{usual:?}");
        let verbose = written(Verbosity::Verbose);
        assert_eq!(
            verbose[2],
            "netchan: shard 3 is turned again (info netchan::watch shard=3)\n"
        );
        assert_eq!(verbose.len(), 5, "{verbose:?}");
    }

    #[test]
    fn names_are_read_back() {
        for one in Verbosity::ALL {
            assert_eq!(Verbosity::called(one.name()), Some(one));
        }
        assert_eq!(Verbosity::called("loud"), None);
    }
}
