//! Where servers run: two network namespaces with a veth between them, the server's and the clients', and a folder for files.

use std::{
    env, fs,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    load::one_datagram,
    programs::Program,
    way::{SERVER, Way},
};
use crate::{
    daemon::Daemon,
    kit::{cores, netchan},
    namespace::Namespace,
};

/// The clients' end of the veth, and of a TAP.
const CLIENTS: &str = "10.91.0.1/24";
const TAP_CLIENTS: &str = "10.92.0.1/24";
/// A server that is up answers within this; one that is not shall not be waited for.
const GLANCE: Duration = Duration::from_millis(100);

/// The namespaces and the folder.
pub(super) struct Stage {
    pub servers: Namespace,
    pub clients: Namespace,
    pub folder: PathBuf,
    /// Servers with one thread have the first; the clients have the last one.
    cores: Vec<usize>,
}

/// The kernel's TCP has netchan's congestion control on a route, whatever its default is.
fn cubic(side: &Namespace, route: &[&str]) -> Result<(), String> {
    let line = [&["route", "replace"], route, &["congctl", "cubic"]].concat();
    side.run("ip", &line)
}

impl Stage {
    pub fn new() -> Result<Self, String> {
        let (servers, clients) = (Namespace::new()?, Namespace::new()?);
        Namespace::connect([&servers, &clients], ["v0", "v1"])?;
        clients.run("ip", &["addr", "add", CLIENTS, "dev", "v1"])?;
        cubic(&clients, &["10.91.0.0/24", "dev", "v1"])?;
        cubic(
            &clients,
            &["local", "127.0.0.1", "dev", "lo", "table", "local"],
        )?;
        let folder = env::temp_dir().join(format!("netchan-services-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self {
            servers,
            clients,
            folder,
            cores: cores(),
        })
    }

    /// Starts a server, and waits until it takes connections. The calling thread must be in the clients' namespace.
    ///
    /// # Errors
    /// What it said last, if it did not come up.
    pub fn serve(
        &self,
        way: Way,
        program: &Program,
        (settings, queues): (&str, usize),
    ) -> Result<Server<'_>, String> {
        let (file, arguments) = program.command(way.address(), &self.folder)?;
        let daemon = match way {
            Way::Daemon => Some(self.daemon(settings, queues)?),
            _ => None,
        };
        let mut command = self.command(way, program.threads() == 1, (settings, queues))?;
        command.arg(file).args(arguments);
        let log = self.folder.join("log");
        let out = fs::File::create(&log).map_err(|e| e.to_string())?;
        let errors = out.try_clone().map_err(|e| e.to_string())?;
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        if way == Way::Kernel {
            let ours = format!("{SERVER}/24");
            (self.servers).run("ip", &["addr", "replace", &ours, "dev", "v0"])?;
            cubic(&self.servers, &["10.91.0.0/24", "dev", "v0"])?;
        }
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let stage = self;
        let mut server = Server {
            stage,
            way,
            child,
            _daemon: daemon,
        };
        for _ in 0..200 {
            // netchan's MAC is another one than the kernel's; and one that was asked for in vain is not asked for again at once.
            (self.clients).run("ip", &["neigh", "flush", "all"])?;
            if answers(program, way) {
                if way == Way::Tap {
                    cubic(&self.clients, &["10.92.0.0/24", "dev", "t0"])?;
                }
                return Ok(server);
            }
            if !matches!(server.child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("nothing");
        Err(format!(
            "{} did not come up; it said: {last}",
            program.name()
        ))
    }

    /// A program's beginning: where, on which core, on whose TCP. It ends when this process does.
    fn command(
        &self,
        way: Way,
        is_pinned: bool,
        (settings, queues): (&str, usize),
    ) -> Result<Command, String> {
        let mut command = self.pinned(way, is_pinned);
        match way {
            Way::Kernel | Way::Loopback => {}
            Way::Daemon => {
                let link = format!("daemon:{}", self.socket().display());
                command.arg(netchan()?).args(["run", "--link", &link, "--"]);
            }
            Way::Packet | Way::Tap => {
                let config = self.config_of(way, settings, queues)?;
                command.arg(netchan()?).args(["run", "--config"]);
                command.arg(config).arg("--");
            }
        }
        Ok(command)
    }

    /// A command at the side of `way`, on the first core or on all.
    fn pinned(&self, way: Way, is_pinned: bool) -> Command {
        let side = match way {
            Way::Kernel | Way::Packet | Way::Daemon => &self.servers,
            Way::Loopback | Way::Tap => &self.clients,
        };
        let mut command = side.command("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        // The calling thread's one core would be handed down.
        let cores = if is_pinned {
            &self.cores[..self.cores.len().min(1)]
        } else {
            &self.cores
        };
        if !cores.is_empty() {
            let list: Vec<_> = cores.iter().map(usize::to_string).collect();
            command.args(["taskset", "-c", &list.join(",")]);
        }
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("daemon.sock")
    }

    /// A daemon that lends the servers' address, on the core of those with one thread.
    fn daemon(&self, settings: &str, queues: usize) -> Result<Daemon, String> {
        let config = self.config_of(Way::Daemon, settings, queues)?;
        let log = self.folder.join("daemon.log");
        Daemon::start(
            self.pinned(Way::Daemon, true),
            &config,
            &self.socket(),
            &log,
        )
    }

    /// The configuration of a stack that has the link.
    fn config_of(&self, way: Way, settings: &str, queues: usize) -> Result<PathBuf, String> {
        let link = match way {
            Way::Tap => format!(
                "kind = \"tap\"\nname = \"t0\"\noptions = {{ peer = \"{TAP_CLIENTS}\", queues = {queues} }}"
            ),
            _ => format!("kind = \"packet\"\nname = \"v0\"\noptions = {{ queues = {queues} }}"),
        };
        let address = format!("{}/24", way.address().ip());
        self.config("server", &link, &address, settings)
    }

    /// A configuration file.
    pub fn config(
        &self,
        name: &str,
        link: &str,
        address: &str,
        settings: &str,
    ) -> Result<PathBuf, String> {
        let file = self.folder.join(format!("{name}.toml"));
        let text = format!("{settings}\n[[link]]\n{link}\naddress = [\"{address}\"]\n");
        fs::write(&file, text).map_err(|e| e.to_string())?;
        Ok(file)
    }
}

/// Whether a server is there.
fn answers(program: &Program, way: Way) -> bool {
    if program.is_of_datagrams() {
        one_datagram(way.address(), b"x", GLANCE).is_ok()
    } else {
        TcpStream::connect_timeout(&way.address(), GLANCE).is_ok()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What cannot be removed lies in a folder for such things.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A server that runs; dropped, it is stopped.
pub(super) struct Server<'a> {
    stage: &'a Stage,
    way: Way,
    child: Child,
    _daemon: Option<Daemon>,
}

impl Server<'_> {
    /// nsenter, setpriv, taskset and `netchan run` become the program that they start.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub const fn address(&self) -> SocketAddr {
        self.way.address()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.way == Way::Kernel {
            let _ = self
                .stage
                .servers
                .run("ip", &["addr", "flush", "dev", "v0"]);
        }
        if self.way == Way::Tap {
            // The TAP goes with its last descriptor, a moment later.
            for _ in 0..100 {
                if self
                    .stage
                    .clients
                    .run("ip", &["link", "show", "t0"])
                    .is_err()
                {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
