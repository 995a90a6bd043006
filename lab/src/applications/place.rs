//! Where the programs run: one network namespace, a daemon with a TAP in it, and a folder for sockets and files.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::program::{At, Role};
use crate::{
    daemon::Daemon,
    kit::{cores, netchan},
    namespace::Namespace,
};

/// The daemon's address, which its programs share.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 93, 0, 2);
const PEER: &str = "10.93.0.1/24";

/// Whose sockets the two programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// netchan's, each in its own process, through the daemon.
    Daemon,
    /// The same; a thread that waits looks for a while before it sleeps.
    DaemonSpin,
    /// The kernel's TCP over its loopback.
    Loopback,
    /// The kernel's UNIX sockets.
    Unix,
}

impl Way {
    pub const fn is_daemon(self) -> bool {
        matches!(self, Self::Daemon | Self::DaemonSpin)
    }
}

/// The namespace, the folder and the daemon.
pub(super) struct Place {
    namespace: Namespace,
    pub folder: PathBuf,
    cores: Vec<usize>,
}

impl Place {
    pub fn new() -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("netchan-applications-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self {
            namespace: Namespace::new()?,
            folder,
            cores: cores(),
        })
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("daemon.sock")
    }

    /// A daemon, with `spin` as its setting.
    ///
    /// # Errors
    /// What it said, where it does not come up.
    pub fn daemon(&self, spin: &str) -> Result<Daemon, String> {
        let config = self.folder.join("daemon.toml");
        let text = format!(
            "spin = \"{spin}\"\n[[link]]\nkind = \"tap\"\nname = \"t0\"\noptions = {{ peer = \"{PEER}\" }}\naddress = [\"{ADDRESS}/24\"]\n"
        );
        fs::write(&config, text).map_err(|e| e.to_string())?;
        let log = self.folder.join("log");
        Daemon::start(self.command(None), &config, &self.socket(), &log)
    }

    /// A command in the namespace, on a core by number if there are so many; it is killed when this thread ends.
    fn command(&self, core: Option<usize>) -> Command {
        let mut command = self.namespace.command("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(core) = core.and_then(|n| self.cores.get(n)) {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command
    }

    /// A program's beginning: on which core, on whose sockets.
    pub fn program(&self, way: Way, core: Option<usize>) -> Result<Command, String> {
        let mut command = self.command(core);
        if way.is_daemon() {
            let link = format!("daemon:{}", self.socket().display());
            command.arg(netchan()?).args(["run", "--link", &link]);
            if way == Way::DaemonSpin {
                command.args(["--spin", SPIN]);
            }
            command.arg("--");
        }
        Ok(command)
    }

    /// A process that plays a role.
    pub fn start(&self, way: Way, core: Option<usize>, role: &Role) -> Result<Player, String> {
        let mut command = self.program(way, core)?;
        let role = serde_json::to_string(role).map_err(|e| e.to_string())?;
        command
            .arg(netchan()?)
            .args(["__inner", "application", &role]);
        Player::start(command, self.folder.join("said"))
    }

    /// Where a server is; `number` tells several apart.
    pub fn at(&self, way: Way, number: u16) -> At {
        let tcp = |ip| At::Tcp(SocketAddr::new(IpAddr::V4(ip), 7000 + number));
        match way {
            Way::Daemon | Way::DaemonSpin => tcp(ADDRESS),
            Way::Loopback => tcp(Ipv4Addr::LOCALHOST),
            Way::Unix => {
                let path = self.folder.join(format!("unix-{number}"));
                // A server before this one left it.
                let _ = fs::remove_file(&path);
                At::Unix(path)
            }
        }
    }
}

/// How long one that spins looks before it sleeps.
pub(super) const SPIN: &str = "50us";

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed lies in a folder for such things.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program that plays a role; dropped, it is killed.
pub(super) struct Player {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What it, or another one since, said on standard error.
    said: PathBuf,
}

impl Player {
    fn start(mut command: Command, said: PathBuf) -> Result<Self, String> {
        let errors = fs::File::create(&said).map_err(|e| e.to_string())?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output),
            said,
            child,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// Where it ends without one.
    pub fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line.trim_end().to_owned()),
            Ok(_) => {
                let said = fs::read_to_string(&self.said).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing");
                Err(format!("a program ended without a word; it said: {last}"))
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Ends its input, and hears its last line.
    pub fn last_word(&mut self) -> Result<String, String> {
        self.input = None;
        self.hear()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
