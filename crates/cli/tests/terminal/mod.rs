//! A program in a terminal of its own: keys in, a screen out.

use std::{
    fs::File,
    io::{Read, Write},
    num::NonZero,
    path::Path,
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a program in it, which is ended with it.
pub struct Terminal {
    master: File,
    /// Its other end, so that it stays when the program ends.
    slave: File,
    screen: vt100::Parser,
    child: Child,
    modes: LocalModes,
    /// All that was written to it.
    pub written: Vec<u8>,
}

impl Terminal {
    /// Starts `program` in a terminal of `columns` and `rows`.
    pub fn start(program: &Path, prepare: impl FnOnce(&mut Command), size: (u16, u16)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = File::from(ioctl_tiocgptpeer(&master, flags).unwrap());
        let end = || slave.try_clone().unwrap();
        // A session of its own, and this its terminal: so that its signals and its size come.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.stdin(end()).stdout(end()).stderr(end());
        prepare(&mut command);
        let (columns, rows) = size;
        let mut terminal = Self {
            master: master.into(),
            modes: tcgetattr(&slave).unwrap().local_modes,
            screen: vt100::Parser::new(cells(rows), cells(columns), 0),
            written: Vec::new(),
            // The size is there before the program is.
            child: {
                tcsetwinsize(&slave, winsize(columns, rows)).unwrap();
                command.spawn().unwrap()
            },
            slave,
        };
        terminal.resize(columns, rows);
        terminal
    }

    /// Another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, winsize(columns, rows)).unwrap();
        self.screen
            .screen_mut()
            .set_size(cells(rows), cells(columns));
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// What is on it.
    pub fn contents(&self) -> String {
        self.screen.screen().contents()
    }

    /// Whether it is as a shell has it: its first screen, a cursor, lines that are edited and shown as they are typed.
    pub fn is_given_back(&self) -> bool {
        let screen = self.screen.screen();
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        !screen.alternate_screen() && !screen.hide_cursor() && modes == self.modes
    }

    /// Reads on until `holds`.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE.as_millis() / 50 {
            self.take();
            if holds(self) {
                return;
            }
        }
        panic!("{what}: it did not come\n{}", self.contents());
    }

    /// Until the screen has `text`.
    pub fn shows(&mut self, text: &str) {
        self.until(text, |terminal| terminal.contents().contains(text));
    }

    /// What there is to read now, or within 50 ms.
    fn take(&mut self) {
        let wait = Timespec::try_from(Duration::from_millis(50)).unwrap();
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&wait)).unwrap_or(0) == 0 {
            return;
        }
        let mut block = [0; 65536];
        let n = self.master.read(&mut block).unwrap();
        self.screen.process(&block[..n]);
        self.written.extend(&block[..n]);
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The letter of proc(5)'s `stat`.
    pub fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// How it ended; what it wrote is read.
    pub fn ended(&mut self) -> ExitStatus {
        self.until("its end", |terminal| terminal.state() == Some('Z'));
        self.take();
        self.child.wait().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

const fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
