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
use crate::{kit::cores, namespace::Namespace};

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
        let mut server = Server { stage, way, child };
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
        let side = match way {
            Way::Kernel | Way::Packet => &self.servers,
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
        if way.is_netchan() {
            let link = match way {
                Way::Tap => {
                    format!(
                        "kind = \"tap\"\nname = \"t0\"\noptions = {{ peer = \"{TAP_CLIENTS}\", queues = {queues} }}"
                    )
                }
                _ => {
                    format!("kind = \"packet\"\nname = \"v0\"\noptions = {{ queues = {queues} }}")
                }
            };
            let config = self.config(
                "server",
                &link,
                &format!("{}/24", way.address().ip()),
                settings,
            )?;
            command
                .arg(netchan()?)
                .args(["run", "--config"])
                .arg(config)
                .arg("--");
        }
        Ok(command)
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

/// The program that this library is linked into, which has `run`.
pub(super) fn netchan() -> Result<PathBuf, String> {
    env::current_exe().map_err(|e| e.to_string())
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
