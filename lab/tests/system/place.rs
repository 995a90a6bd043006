//! Where a case takes place: a network namespace, a folder, a TAP or a veth in it, and netchan's own program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{Finished, Process, eventually};

/// The programs every case may use.
pub const PROGRAMS: &[&str] = &[
    "ip", "curl", "nc", "iperf3", "tcpdump", "nft", "ethtool", "ping", "python3",
];

/// netchan's and the kernel's addresses on the link.
pub const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];
pub const KERNEL: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// How long a small thing may take on a slow and busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// Sizes and times, from the environment.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// The long forms.
    pub soak: bool,
    /// Size of the large file, MiB.
    pub bulk_mib: usize,
    /// How long the live stack is fuzzed.
    pub fuzz: Duration,
    /// Programs of a storm over the points of a lease's life.
    pub storm: usize,
    /// Programs whose daemon ends.
    pub orphans: usize,
}

impl Knobs {
    pub fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
        let soak = std::env::var_os("NETCHAN_SOAK").is_some();
        let usual = match soak {
            true => 1024,
            false if cfg!(debug_assertions) => 64,
            false => 512,
        };
        let bulk_mib = number("NETCHAN_BULK_MIB").unwrap_or(usual);
        let fuzz = Duration::from_secs(number("NETCHAN_FUZZ_SECONDS").unwrap_or(if soak {
            600
        } else {
            20
        }));
        let many = |name, usual| {
            number(name)
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(usual)
        };
        Self {
            soak,
            bulk_mib: usize::try_from(bulk_mib).unwrap_or(1024),
            fuzz,
            storm: many("NETCHAN_STORM", if soak { 10_000 } else { 252 }),
            orphans: many("NETCHAN_ORPHANS", if soak { 1000 } else { 28 }),
        }
    }
}

/// Where the program `name` is; Debian's own before what a person put in front of it (a wrapper script is no ELF).
pub fn find(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|f| f.join(name))
        .find(|p| p.is_file())
}

/// The program netchan of this build, which lies beside this test's own.
pub fn netchan() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    let built = here.ancestors().find(|p| p.join("netchan").is_file());
    built
        .map(|p| p.join("netchan"))
        .ok_or_else(|| "the program netchan is not built (make build)".to_owned())
}

/// What the names of places begin with; the number of their process and a count follow.
const PREFIX: &str = "nct-";

/// Where folders are.
fn base() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// Takes a place away: whatever still runs in its namespace, that, and the folder. What cannot be removed is no case's failure.
fn remove(name: &str) {
    let ip = find("ip").unwrap_or_else(|| "ip".into());
    let inside = Command::new(ip).args(["netns", "pids", name]).output();
    let inside = inside.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let pids = inside.unwrap_or_default();
    for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
    }
    let _ = host("ip", &["netns", "del", name]);
    let _ = fs::remove_dir_all(base().join(name));
}

/// Takes away what runs that were killed have left: places of processes that are no more.
pub fn remove_leftovers() {
    let folders = fs::read_dir("/run/netns")
        .into_iter()
        .chain(fs::read_dir(base()));
    let names = folders.flatten().flatten().map(|entry| entry.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        let pid = pid.and_then(|(pid, _)| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// A namespace and a folder; dropped, both are gone, and with them what still runs there.
pub struct Place {
    pub name: String,
    /// For files; in memory where that is possible.
    pub folder: PathBuf,
}

/// Runs `program` to its end; status other than 0 is an error.
fn host(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = find(program).ok_or_else(|| format!("{program} is missing"))?;
    let out = Command::new(path)
        .args(arguments)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        Ok(())
    } else {
        Err(format!("{program} {}: {said}", arguments.join(" ")))
    }
}

impl Place {
    pub fn new() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: a number on its own.
        let (own, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let name = format!("{PREFIX}{own}-{count}");
        let folder = base().join(&name);
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let place = Self { name, folder };
        host("ip", &["netns", "add", &place.name])?;
        place.ip(&["link", "set", "lo", "up"])?;
        Ok(place)
    }

    /// `ip` in the namespace.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        host("ip", &[&["-n", &self.name], arguments].concat())
    }

    /// A TAP with the kernel's end up and addressed.
    pub fn tap(&self, name: &str) -> Result<(), String> {
        self.tap_with(name, &[])
    }

    /// The same, with more that `ip tuntap` is to be told.
    pub fn tap_with(&self, name: &str, flags: &[&str]) -> Result<(), String> {
        let add = ["tuntap", "add", "mode", "tap", "name", name];
        self.ip(&[&add, flags].concat())?;
        self.address(name)
    }

    /// Moves a link to another place, where it has neither addresses nor is up.
    pub fn give(&self, link: &str, to: &Self) -> Result<(), String> {
        self.ip(&["link", "set", link, "netns", &to.name])
    }

    /// A veth: `first` is the kernel's end, `second` netchan's.
    pub fn veth(&self, first: &str, second: &str) -> Result<(), String> {
        self.ip(&["link", "add", first, "type", "veth", "peer", "name", second])?;
        self.ip(&["link", "set", second, "up"])?;
        self.address(first)
    }

    fn address(&self, name: &str) -> Result<(), String> {
        self.ip(&["address", "add", &format!("{}/24", KERNEL[0]), "dev", name])?;
        self.ip(&[
            "-6",
            "address",
            "add",
            &format!("{}/64", KERNEL[1]),
            "dev",
            name,
            "nodad",
        ])?;
        self.ip(&["link", "set", name, "up"])
    }

    /// A command for a program in the namespace.
    pub fn command(&self, program: &str) -> Command {
        // With SIGINT as a shell in the foreground gives it: under nohup or in a script's background it is ignored, a program that is started so
        // leaves it so (POSIX, XCU 2.12), and nothing would end it.
        let mut command = Command::new("env");
        let path = find(program).unwrap_or_else(|| PathBuf::from(program));
        command
            .arg("--default-signal=INT")
            .arg(find("ip").unwrap_or_else(|| "ip".into()))
            .args(["netns", "exec", &self.name])
            .arg(path)
            .current_dir(&self.folder);
        command
    }

    /// Runs a program in the namespace to its end.
    pub fn run(
        &self,
        program: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<Finished, String> {
        let mut command = self.command(program);
        command.args(arguments);
        Process::start(command, &self.folder, &format!("{program}-run"))?.finish(patience)
    }

    /// Starts a program in the namespace.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Result<Process, String> {
        let mut command = self.command(program);
        command.args(arguments);
        Process::start(command, &self.folder, &format!("{program}-kernel"))
    }

    /// A program on netchan over `link`, or (none) on the kernel.
    pub fn command_on(
        &self,
        link: Option<&str>,
        program: &str,
        arguments: &[&str],
    ) -> Result<Command, String> {
        if let Some(link) = link {
            return self.netchan_run(link, program, arguments);
        }
        let mut command = self.command(program);
        command.args(arguments);
        Ok(command)
    }

    /// Another part of this binary in the namespace.
    pub fn inner(&self, arguments: &[&str]) -> Result<Process, String> {
        let here = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = self.command(&here.to_string_lossy());
        command.arg("--inner").args(arguments);
        Process::start(
            command,
            &self.folder,
            &format!("inner-{}", arguments.first().unwrap_or(&"none")),
        )
    }

    /// `netchan run` on `link` with both of our addresses, in the default regime.
    pub fn netchan_run(
        &self,
        link: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Command, String> {
        self.netchan_run_in("app-channel", link, program, arguments)
    }

    /// Runs a program in `regime`, which may name a dispatch, too: `locked/hybrid`.
    pub fn netchan_run_in(
        &self,
        regime: &str,
        link: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Command, String> {
        let path = find(program).ok_or_else(|| format!("{program} is missing"))?;
        let mut command = self.command(&netchan()?.to_string_lossy());
        let (v4, v6) = (format!("{}/24", OURS[0]), format!("{}/64", OURS[1]));
        command.args(["run", "--link", link, "--address", &v4, "--address", &v6]);
        command.args(["--gateway", KERNEL[0], "--gateway", KERNEL[1]]);
        let (regime, dispatch) = regime.split_once('/').unwrap_or((regime, "direct"));
        command.args(["--regime", regime, "--dispatch", dispatch, "--"]);
        command.arg(path).args(arguments);
        Ok(command)
    }

    /// Starts netchan and returns.
    pub fn start_netchan(
        &self,
        link: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Process, String> {
        Process::start(
            self.netchan_run(link, program, arguments)?,
            &self.folder,
            &format!("{program}-netchan"),
        )
    }

    /// `netchan show TOPIC` of the stack in process `pid`.
    pub fn show(&self, pid: u32, topic: &str) -> Result<Value, String> {
        let pid = pid.to_string();
        let program = netchan()?;
        let arguments = ["show", topic, "--json", "--pid", &pid];
        let shown = self
            .run(&program.to_string_lossy(), &arguments, SOON)?
            .success()?;
        serde_json::from_str(&shown.output)
            .map_err(|e| format!("netchan show {topic}: {e}: {}", shown.output))
    }

    /// Waits until `server` listens at `port` (on netchan, or in the kernel), without connecting to it.
    pub fn wait_listening(
        &self,
        server: &mut Process,
        on_netchan: bool,
        port: u16,
    ) -> Result<(), String> {
        let is_listening = || {
            if on_netchan {
                let shown = self
                    .show(server.pid(), "sockets")
                    .unwrap_or_default()
                    .to_string();
                return shown.contains(&format!(":{port}\""));
            }
            let filter = format!("sport = :{port}");
            let shown = self.run("ss", &["-Hltn", &filter], SOON);
            shown.is_ok_and(|s| s.output.contains(&format!(":{port}")))
        };
        if eventually(SOON, is_listening) {
            return Ok(());
        }
        Err(format!(
            "`{}` does not listen at port {port}: {}",
            server.what,
            server.said()
        ))
    }

    /// Waits until something accepts connections at `address`:`port`, as the kernel sees it.
    pub fn wait_for(&self, server: &mut Process, address: &str, port: u16) -> Result<(), String> {
        let target = socket_address(address, port);
        let mut running = true;
        let up = eventually(SOON, || {
            running = server.is_running();
            let probe = self.inner(&["probe", &target]).and_then(|p| p.finish(SOON));
            !running || probe.is_ok_and(|p| p.status.success())
        });
        match (up, running) {
            (true, true) => Ok(()),
            (_, false) => Err(format!("`{}` ended: {}", server.what, server.said())),
            (false, true) => Err(format!(
                "`{}` does not answer at {target}: {}",
                server.what,
                server.said()
            )),
        }
    }
}

/// `10.77.0.2:80`, `[fd77::2]:80`.
pub fn socket_address(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.name);
    }
}
