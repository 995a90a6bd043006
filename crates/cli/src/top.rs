//! `netchan top`: a live view of one stack in the terminal, or one frame of it as text.

use std::{
    io::{self, IsTerminal},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use netchan::control::{AskError, Stack};
use ratatui::{buffer::Buffer, crossterm::event, layout::Rect};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

mod draw;
mod keys;
mod sampler;
mod screen;
mod view;

use self::{
    draw::Notes,
    keys::Action,
    sampler::{Look, Order as Ask},
    screen::Screen,
    view::View,
};
use crate::{
    failure::{Failure, Outcome, at, failed, usage},
    look::{
        model::Model,
        order::Order,
        sample::{self, Sample},
    },
    output::{print, print_json, printable},
    show::{Filter, choose},
    units,
};

/// Columns of a frame that is text.
const TEXT_WIDTH: u16 = 120;
/// Connections in a frame that is text.
const TEXT_CONNECTIONS: usize = 100;
/// An answer that is late by more than this is missing.
const LATE: Duration = Duration::from_secs(2);
/// How often the screen looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// Shows what a running stack does, live in the terminal
#[derive(clap::Args)]
#[command(
    after_help = "Cores, threads, channels, drops by reason, and connections by rate, of the stack and of the machine it runs on. Keys: h shows them. With several stacks and no --pid, n goes \
        to the next one.\n\n\
        Where standard output is no terminal, as with --once: one frame as text, over one interval. `netchan show` has each fact on its own.\n\n\
        FILTER is in the words of ss(8), as for `netchan show sockets`. A stack that takes long to answer is asked less often, so that it never spends more than a fifth of its time on it.\n\n\
        Examples:\n  netchan top\n  netchan top --pid 4711 --interval 0.5 --sort rtt\n  netchan top state established dport = :443\n  \
        netchan top --once | head -20\n  netchan top --json"
)]
pub struct Arguments {
    /// Only connections that it lets through
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Seconds between two looks at the stack
    #[arg(long, short, value_name = "SECONDS", default_value = "1")]
    interval: String,
    /// What connections are sorted by
    #[arg(long, value_enum, default_value_t = Order::Rate)]
    sort: Order,
    /// The other way round
    #[arg(long, short)]
    reverse: bool,
    /// Print one frame as text
    #[arg(long)]
    once: bool,
    /// Print one frame as JSON, with all connections
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn top(arguments: &Arguments) -> Outcome {
    let filter = Filter::parse(&arguments.filter).map_err(usage)?;
    let pace = match arguments.interval.parse::<f64>() {
        Ok(s) if (0.1..=3600.0).contains(&s) => Duration::from_secs_f64(s),
        _ => return Err(usage("--interval: give 0.1 to 3600 seconds")),
    };
    let words = arguments.filter.join(" ");
    let mut view = View::new(pace, arguments.sort, filter, words);
    view.is_reversed = arguments.reverse;
    let stacks = choose(arguments.pid.as_deref())?;
    if arguments.once || arguments.json || !io::stdout().is_terminal() {
        return once(&stacks, &view, arguments.json);
    }
    let Some(first) = stacks.first() else {
        return Err(failed("no stack"));
    };
    Program::new(view, first.clone(), arguments.pid.clone())?.run()
}

/// A frame of each stack, as text.
fn once(stacks: &[Stack], view: &View, json: bool) -> Outcome {
    let mut models = Vec::new();
    for stack in stacks {
        let look = |regime: &mut Option<String>| {
            let sample = sample::take(stack, regime);
            sample.map_err(|why| failed(printable(&format!("stack {}: {why}", stack.id))))
        };
        let mut regime = None;
        let before = look(&mut regime)?;
        thread::sleep(view.pace);
        let model = Model::between(Some(&before), &look(&mut regime)?);
        models.push(model);
    }
    if json {
        return match &models[..] {
            [model] => print_json(model),
            models => print_json(&models),
        };
    }
    let frames: Vec<String> = (models.iter().enumerate())
        .map(|(i, model)| {
            text(
                model,
                view,
                (models.len() > 1).then_some((i + 1, models.len())),
            )
        })
        .collect();
    print(&frames.join("\n"))
}

/// A frame without a terminal: as high as it needs.
fn text(model: &Model, view: &View, stack: Option<(usize, usize)>) -> String {
    let width = match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col,
        _ => TEXT_WIDTH,
    };
    let height = draw::height(model, view, width, TEXT_CONNECTIONS);
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    let notes = Notes {
        stack,
        ..Notes::default()
    };
    draw::frame(&mut buf, area, Some(model), view, &notes);
    let mut lines = draw::lines(&buf);
    lines.pop(); // the keys
    let text = lines.join("\n");
    format!("{}\n", text.trim_end())
}

/// What the program waits for.
enum Event {
    Terminal(event::Event),
    Signal(i32),
    Looked(Box<Look>),
    /// A thread of the program's own has ended.
    Broken(&'static str),
}

/// Says that its thread has ended, however it does.
struct Ends(Sender<Event>, &'static str);

impl Ends {
    /// Whether the program still listens.
    fn say(&self, event: Event) -> bool {
        self.0.send(event).is_ok()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // No receiver: the program ends, too.
        let _ = self.0.send(Event::Broken(self.1));
    }
}

/// The live view.
struct Program {
    view: View,
    events: Receiver<Event>,
    asks: Sender<Ask>,
    screen: Screen,
    before: Option<Sample>,
    model: Option<Model>,
    stack: Option<(usize, usize)>,
    /// The last look that failed, since the last that did not.
    failed: Option<AskError>,
    /// When the last answer came, or the program began.
    answered_ns: u64,
    /// Since when it is asked at this pace.
    asked_ns: u64,
    stretched: Option<Duration>,
}

impl Program {
    fn new(view: View, stack: Stack, pid: Option<String>) -> Result<Self, Failure> {
        let (say, events) = channel();
        let (asks, asked) = channel();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP];
        let mut signals = signal_hook::iterator::Signals::new(signals).map_err(at("signals"))?;
        let screen = Screen::enter().map_err(at("the terminal"))?;
        let ends = Ends(say.clone(), "the thread that hears signals");
        thread::spawn(move || {
            for signal in &mut signals {
                if !ends.say(Event::Signal(signal)) {
                    return;
                }
            }
        });
        let ends = Ends(say.clone(), "the terminal's input");
        thread::spawn(move || {
            while let Ok(event) = event::read() {
                if !ends.say(Event::Terminal(event)) {
                    return;
                }
            }
        });
        let ends = Ends(say, "the thread that asks the stack");
        let pace = view.pace;
        thread::spawn(move || {
            let say = |look| ends.say(Event::Looked(Box::new(look)));
            sampler::run(stack, pid.as_deref(), pace, &asked, say);
        });
        Ok(Self {
            view,
            events,
            asks,
            screen,
            before: None,
            model: None,
            stack: None,
            failed: None,
            answered_ns: units::now_ns(),
            asked_ns: units::now_ns(),
            stretched: None,
        })
    }

    fn run(mut self) -> Outcome {
        loop {
            self.draw()?;
            // All that has happened goes into one frame.
            let first = match self.events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let more: Vec<Event> = self.events.try_iter().take(100).collect();
            for event in first.into_iter().chain(more) {
                match self.react(event)? {
                    Action::Quit => return Ok(()),
                    Action::Suspend => self.screen.suspend().map_err(at("the terminal"))?,
                    Action::Redraw => self.screen.clear().map_err(at("the terminal"))?,
                    Action::Next => self.ask(Ask::Next),
                    Action::Pace => {
                        self.ask(Ask::Pace(self.view.pace));
                        self.ask(Ask::Pause(self.view.is_paused));
                        // What was not asked for is not late.
                        self.asked_ns = units::now_ns();
                    }
                    Action::Nothing => {}
                }
            }
        }
    }

    fn ask(&self, what: Ask) {
        // That its thread has ended is an event of its own.
        let _ = self.asks.send(what);
    }

    fn react(&mut self, event: Event) -> Result<Action, Failure> {
        Ok(match event {
            Event::Terminal(event::Event::Key(key)) => keys::press(&mut self.view, key),
            Event::Terminal(_) => Action::Nothing, // another size: the next frame has it
            Event::Signal(SIGTSTP) => Action::Suspend,
            Event::Signal(_) => Action::Quit,
            Event::Looked(look) => {
                self.take(*look);
                Action::Nothing
            }
            // The terminal is gone.
            Event::Broken("the terminal's input") => Action::Quit,
            Event::Broken(what) => return Err(failed(format!("{what} has ended"))),
        })
    }

    fn take(&mut self, look: Look) {
        self.stack = (look.of > 1).then_some((look.number, look.of));
        self.stretched = (look.pause > self.view.pace).then_some(look.pause);
        match look.result {
            Ok(sample) => {
                self.model = Some(Model::between(self.before.as_ref(), &sample));
                self.before = Some(sample);
                self.failed = None;
                self.answered_ns = units::now_ns();
            }
            Err(why) => self.failed = Some(why),
        }
    }

    /// What is wrong with the stack's answers.
    fn trouble(&self) -> Option<String> {
        let now = units::now_ns();
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        let seconds = since(self.answered_ns).as_secs();
        match &self.failed {
            Some(AskError::Gone) => {
                Some(format!("the stack has ended; last answer {seconds} s ago"))
            }
            Some(AskError::Silent(why)) => Some(format!("no answer since {seconds} s: {why}")),
            Some(why) => Some(format!("no answer since {seconds} s: {why}")),
            None if self.view.is_paused => None,
            None => {
                let due = self.view.pace.max(self.stretched.unwrap_or_default());
                let waited = since(self.answered_ns.max(self.asked_ns));
                (waited > due + LATE).then(|| format!("no answer since {seconds} s"))
            }
        }
        .map(|trouble| printable(&trouble))
    }

    fn draw(&mut self) -> Outcome {
        let notes = Notes {
            trouble: self.trouble(),
            stack: self.stack,
            stretched: self.stretched.map(|pause| pause.as_secs_f64()),
        };
        let (model, view) = (self.model.as_ref(), &self.view);
        let mut rows = 0;
        let paint = |buf: &mut Buffer, area| rows = draw::frame(buf, area, model, view, &notes);
        self.screen.draw(paint).map_err(at("the terminal"))?;
        // Nothing is passed over that is not there, so that the keys do not seem dead on the way back.
        self.view.passed = self.view.passed.min(rows.saturating_sub(1));
        Ok(())
    }
}
