//! `netchan run`: checks what was asked for, puts the preload library in front, and becomes the program.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use clap::builder::PossibleValuesParser;
use netchan::{
    Builder, Dispatch, Regime,
    config::{Config, LogConfig, RunConfig},
    environment::{self, Door, HandedOn},
    link::specification::{Kind, Specification},
    log::Verbosity,
};

use crate::{
    elf::{self, Means},
    failure::{Failure, Outcome, at, failed, usage},
    log,
    user::{self, User},
};

pub mod attended;
mod plan;
pub mod sandbox;
mod supervised;

/// A variable that the preload library reads, and its value.
pub type Setting = (&'static str, OsString);

/// The preload library's file.
const LIBRARY: &str = "libnetchan_preload.so";

/// Runs an unmodified program on netchan
#[derive(clap::Args, Default)]
#[command(
    after_help = "The program's internet sockets live in a stack inside its own process; its process number, signals, files and exit \
        status are its own. What netchan does not serve (UNIX sockets, netlink, 127.0.0.0/8 without --loopback) stays with the kernel. \
        Of a program that makes its system calls itself (a static one, Go's), and with --supervise, the stack lives in this process, which serves \
        TCP (and UDP for programs of the C library) and goes on as long as the last of what the program has started. \
        Without --link (and --config) it gets a TAP device of its own, nc0 or the next free name: the program is 10.77.0.2 and fd77::2 \
        there, this machine 10.77.0.1 and fd77::1 (10.77.1.x for nc1, and so on); with --address it is there, and this machine the first other \
        address of that network, or the --gateway. That needs root, or CAP_NET_ADMIN. With --loopback and nothing else that names a link or an address \
        there is no TAP, only the program's own 127.0.0.0/8 and ::1, which all that it starts shares, and nothing else: with --kernel 127.0.0.53, say, \
        a name server there stays within reach. On a daemon that lends these addresses (netchan daemon --loopback) all programs with --loopback share them.\n\n\
        Examples:\n  netchan run -- python3 -m http.server 8000     then: curl http://10.77.0.2:8000/\n  \
        netchan run --link tap:nc5 --address 192.168.7.2/24 --gateway 192.168.7.1 -- curl http://example.org/\n  \
        netchan run --loopback -- python3 -m test test_socket\n  \
        netchan run --regime locked --dispatch deferred -- iperf3 -s"
)]
pub struct Arguments {
    /// Where packets enter and leave. The text for people has brackets, which rustdoc would take for a link.
    #[arg(
        long,
        value_name = "LINK",
        conflicts_with = "config",
        help = "Where packets enter and leave: KIND[:NAME][,option=value]..., such as tap:nc0 or packet:eth0"
    )]
    pub link: Option<String>,
    /// An address with its prefix length, such as 10.77.0.2/24 or fd77::2/64 (may be repeated)
    #[arg(long, value_name = "ADDRESS/PREFIX", conflicts_with = "config")]
    pub address: Vec<String>,
    /// The default gateway; once for each family
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub gateway: Vec<String>,
    /// Addresses that stay with the kernel beside its loopback (and of that with --loopback), such as 10.0.0.0/8 (may be repeated)
    #[arg(long, value_name = "PREFIX")]
    pub kernel: Vec<String>,
    /// How work is placed on cores (default: app-channel)
    #[arg(long, value_name = "REGIME", value_parser = PossibleValuesParser::new(Regime::here().map(Regime::name)))]
    pub regime: Option<String>,
    /// Put everything under the one lock: around the regime locked, or, without --regime, as the regime giant
    #[arg(long)]
    pub giant: bool,
    /// Where protocol work for a received packet runs, for the regimes that leave a choice (default: direct)
    #[arg(long, value_name = "DISPATCH", value_parser = PossibleValuesParser::new(Dispatch::ALL.map(Dispatch::name)))]
    pub dispatch: Option<String>,
    /// How long a thread that waits looks before it sleeps, such as 50us: answers come sooner, for processor time (at most 10ms; default: 0us)
    #[arg(long, value_name = "TIME")]
    pub spin: Option<String>,
    /// Pass packets for other hosts on between the links (of a --config file: --link names only one)
    #[arg(long)]
    pub forwarding: bool,
    /// Make 127.0.0.0/8 and ::1 the program's own, on its stack: for programs that talk to themselves
    #[arg(long)]
    pub loopback: bool,
    /// Keep the stack in this process, and answer the program's calls about its sockets from here: for servers that go into the background, and as
    /// always for programs that make their system calls themselves (static ones, Go's)
    #[arg(long)]
    pub supervise: bool,
    /// Keep the links in this process, and lend them to the program and all that it starts, as a daemon would: each has a stack of its own, and they
    /// share the addresses as with a kernel
    #[arg(long, conflicts_with = "supervise")]
    pub shared: bool,
    /// Give up all rights but those of this user, named or by number, once the links are open (no_new_privs goes with it)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Confine the program once the links are open: it writes only to /tmp, /var/tmp, its terminal and --writable, and calls that change the
    /// machine or look into other processes are refused
    #[arg(long)]
    pub sandbox: bool,
    /// A file or directory that a confined program may write to, with all beneath (may be repeated)
    #[arg(long, value_name = "PATH")]
    pub writable: Vec<PathBuf>,
    /// Take everything from this file instead
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

impl Arguments {
    /// Whether the loopback addresses are all that was asked for.
    const fn is_loopback_alone(&self) -> bool {
        self.loopback && self.address.is_empty() && self.gateway.is_empty()
    }
}

/// A run that has been looked at.
pub struct Plan {
    /// The program, without what tells it of netchan.
    pub command: Command,
    /// As a person calls it.
    pub program: String,
    pub means: Means,
    pub settings: Vec<Setting>,
    pub run: RunConfig,
    pub log: LogConfig,
    pub user: Option<User>,
    /// What is said once the stack runs.
    pub announcement: Option<String>,
}

/// Looks at what was asked for.
pub fn plan(arguments: &Arguments, log: &log::Flags) -> Result<Plan, Failure> {
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| usage("no COMMAND given"))?;
    let program = program
        .to_str()
        .ok_or_else(|| failed("the program's name is not UTF-8"))?;
    if program.starts_with('-') {
        return Err(usage(format!("unknown option {program}")));
    }
    let mut settings = settings(arguments)?;
    let plan = match (&arguments.link, &arguments.config) {
        (None, None) if arguments.is_loopback_alone() => None,
        (None, None) => Some(plan::default_link(&arguments.address, &arguments.gateway)?),
        _ => None,
    };
    if let Some(plan) = &plan {
        settings.retain(|(name, _)| ![environment::ADDRESS, environment::GATEWAY].contains(name));
        settings.extend(plan.settings());
    }
    let (path, means) = elf::check(program).map_err(failed)?;
    let (run, log) = run_config(arguments, log)?;
    let user = user(arguments, &run)?;
    let mut command = Command::new(path);
    command.arg0(program).args(rest);
    for name in FOR_THE_PROGRAM.into_iter().chain(OPTIONS.map(|o| o.0)) {
        command.env_remove(name); // what an outer `netchan run` had asked for
    }
    Ok(Plan {
        command,
        program: program.to_owned(),
        means,
        settings,
        run,
        log,
        user,
        announcement: plan.map(|plan| plan.announcement(program)),
    })
}

/// Runs the command; returns only when it could not.
pub fn run(arguments: &Arguments, log: &log::Flags) -> Outcome {
    let mut plan = plan(arguments, log)?;
    if plan.means == Means::Supervision || arguments.supervise {
        // Without the library its datagram sockets are the kernel's.
        if plan.means == Means::Preload
            && let Ok(list) = library().and_then(|library| preload(&library))
        {
            plan.command
                .env("LD_PRELOAD", list)
                .env(environment::SUPERVISED, std::process::id().to_string());
        }
        return supervised::run(plan);
    }
    let Plan {
        mut command,
        program,
        settings,
        mut run,
        log,
        user,
        announcement,
        ..
    } = plan;
    let links = open(&settings)?;
    let library = library()?;
    let door = Door::draw().map_err(|e| failed(format!("random numbers: {e}")))?;
    if let Some(said) = announcement.filter(|_| log.level != Some(Verbosity::Quiet)) {
        command.env(environment::ANNOUNCE, said);
    }
    command
        .envs(settings)
        .env(environment::DESCRIPTORS, &links.value)
        .env(environment::DOOR, door.encode())
        .env(
            environment::PROGRAM,
            format!("{} {program}", std::process::id()),
        )
        .env("LD_PRELOAD", preload(&library)?);
    if let Some(user) = user {
        give_up_rights(&user, &library, &mut command)?;
    }
    tell(&log, &mut run, &mut command)?;
    if run.sandbox == Some(true) {
        sandbox::enter(&run.writable).map_err(|why| failed(format!("--sandbox: {why}")))?;
    }
    Err(failed(format!("{program}: {}", command.exec())))
}

/// Tells the program's process how much to tell, and where to.
pub fn tell(log: &LogConfig, run: &mut RunConfig, command: &mut Command) -> Outcome {
    if let Some(level) = log.level {
        command.env(environment::LOG, level.name());
    }
    if let Some(file) = &log.file {
        let file = log::absolute(file)?;
        // Here an error still stops what was asked for; and a confined program writes to a file that is there.
        drop(log::open(&file)?);
        command.env(environment::LOG_FILE, &file);
        run.writable.push(file);
    }
    Ok(())
}

/// What the options say of the program's process, else the configuration.
fn run_config(
    arguments: &Arguments,
    flags: &log::Flags,
) -> Result<(RunConfig, LogConfig), Failure> {
    let (mut run, log) = match &arguments.config {
        Some(file) => {
            let config = Config::load(file).map_err(failed)?;
            (config.run, config.log)
        }
        None => Default::default(),
    };
    if arguments.user.is_some() {
        run.user.clone_from(&arguments.user);
    }
    if arguments.sandbox {
        run.sandbox = Some(true);
    }
    if !arguments.writable.is_empty() && run.sandbox != Some(true) {
        return Err(usage("--writable is for a confined program: --sandbox"));
    }
    run.writable.extend(arguments.writable.iter().cloned());
    Ok((run, flags.over(log)))
}

/// The user that the program is to run as.
fn user(arguments: &Arguments, run: &RunConfig) -> Result<Option<User>, Failure> {
    let Some(wanted) = &run.user else {
        return Ok(None);
    };
    let by = match arguments.user {
        Some(_) => "--user",
        None => "run.user",
    };
    let found = user::find(wanted);
    found.map_or_else(
        || Err(usage(format!("{by}: there is no user {wanted}"))),
        |user| Ok(Some(user)),
    )
}

fn give_up_rights(user: &User, library: &Path, command: &mut Command) -> Outcome {
    user.become_it()
        .map_err(|e| failed(format!("cannot become user {}: {e}", user.name)))?;
    // The loader would only warn, and start the program without netchan.
    std::fs::File::open(library).map_err(|e| {
        failed(format!(
            "user {} may not read {}: {e}; set NETCHAN_PRELOAD to a copy that it may",
            user.name,
            library.display()
        ))
    })?;
    command.env_remove("XDG_RUNTIME_DIR"); // another user's
    command
        .env("HOME", &user.home)
        .env("USER", &user.name)
        .env("LOGNAME", &user.name);
    Ok(())
}

/// What was asked for, as the preload library will read it; refused here if it makes no sense.
pub fn settings(arguments: &Arguments) -> Result<Vec<Setting>, Failure> {
    let mut given: Vec<Setting> = Vec::new();
    let lists = [
        (environment::ADDRESS, &arguments.address),
        (environment::GATEWAY, &arguments.gateway),
        (environment::KERNEL, &arguments.kernel),
    ];
    for (name, values) in lists {
        if !values.is_empty() {
            given.push((name, values.join(",").into()));
        }
    }
    if let Some(link) = &arguments.link {
        given.push((environment::LINK, link.into()));
        let parsed: Specification = link.parse().map_err(usage)?;
        // A daemon's link comes with the daemon's addresses.
        let goes_without = matches!(parsed.kind, Kind::Loop | Kind::Wire | Kind::Daemon);
        if arguments.address.is_empty() && !goes_without {
            return Err(usage(format!(
                "--link {link} needs an address of its own: --address 10.77.0.2/24"
            )));
        }
    }
    if let Some(regime) = &arguments.regime {
        given.push((environment::REGIME, regime.into()));
    }
    if arguments.giant {
        given.push((environment::GIANT, "true".into()));
    }
    if arguments.forwarding {
        given.push((environment::FORWARDING, "true".into()));
    }
    if arguments.loopback {
        given.push((environment::LOOPBACK, "true".into()));
    }
    if let Some(dispatch) = &arguments.dispatch {
        given.push((environment::DISPATCH, dispatch.into()));
    }
    if let Some(time) = &arguments.spin {
        given.push((environment::SPIN, time.into()));
    }
    if let Some(file) = &arguments.config {
        let file = std::path::absolute(file).map_err(|e| usage(format!("--config: {e}")))?;
        std::fs::metadata(&file).map_err(at(file.display()))?;
        given.push((environment::CONFIG, file.into()));
    }
    Ok(given)
}

/// Opens what was asked for, with the rights that there are now, and leaves it open for the program.
fn open(settings: &[Setting]) -> Result<HandedOn, Failure> {
    let builder = builder(settings)?;
    let config = value(settings, environment::CONFIG).map(PathBuf::from);
    environment::hand_on(&builder, config.as_deref())
        .map_err(|why| failed(format!("cannot hand the links over: {why}")))
}

pub fn value(settings: &[Setting], name: &str) -> Option<String> {
    let known = settings.iter().find(|(known, _)| *known == name);
    known.map(|(_, value)| value.to_string_lossy().into_owned())
}

/// A stack of what was asked for; its links are open.
pub fn builder(settings: &[Setting]) -> Result<Builder, Failure> {
    let from_file = value(settings, environment::CONFIG).is_some();
    environment::builder(&|name| value(settings, name)).map_err(|why| {
        let said = in_options(&why.to_string());
        match why.kind() == io::ErrorKind::InvalidInput && !from_file {
            true => usage(said),
            false => failed(said),
        }
    })
}

/// Variables that tell the program's process more than options say.
const FOR_THE_PROGRAM: [&str; 8] = [
    environment::OWNER,
    environment::DOOR,
    environment::SERVED,
    environment::DESCRIPTORS,
    environment::PROGRAM,
    environment::ANNOUNCE,
    environment::SUPERVISED,
    environment::INTERFACES,
];

/// The variables that the preload library reads, and the options that stand for them.
const OPTIONS: [(&str, &str); 13] = [
    (environment::LOG_FILE, "--log-file"),
    (environment::LOG, "--verbose"),
    (environment::LINK, "--link"),
    (environment::ADDRESS, "--address"),
    (environment::GATEWAY, "--gateway"),
    (environment::REGIME, "--regime"),
    (environment::DISPATCH, "--dispatch"),
    (environment::SPIN, "--spin"),
    (environment::GIANT, "--giant"),
    (environment::FORWARDING, "--forwarding"),
    (environment::LOOPBACK, "--loopback"),
    (environment::KERNEL, "--kernel"),
    (environment::CONFIG, "--config"),
];

/// A message about variables, as one about options.
fn in_options(message: &str) -> String {
    OPTIONS
        .iter()
        .fold(message.to_owned(), |text, (variable, option)| {
            text.replace(variable, option)
        })
}

/// The preload library: `NETCHAN_PRELOAD`, beside the program, or in `../lib/netchan`.
pub fn library() -> Result<PathBuf, Failure> {
    if let Some(given) = env::var_os("NETCHAN_PRELOAD") {
        let given = PathBuf::from(given);
        return match given.is_file() {
            true => std::path::absolute(&given).map_err(failed),
            false => Err(failed(format!(
                "NETCHAN_PRELOAD={}: there is no such file",
                given.display()
            ))),
        };
    }
    let own = env::current_exe().map_err(|e| failed(format!("netchan cannot find itself: {e}")))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.join(LIBRARY),
        directory.join("../lib/netchan").join(LIBRARY),
    ];
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    Err(failed(format!(
        "{LIBRARY} is neither at {} nor at {}; build it (cargo build --release -p netchan-preload) or set NETCHAN_PRELOAD",
        places[0].display(),
        places[1].display()
    )))
}

/// The loader's variable, with what it held before.
pub fn preload(library: &Path) -> Result<OsString, Failure> {
    let mut list = library.as_os_str().to_owned();
    if list.to_string_lossy().contains([':', ' ']) {
        return Err(failed(format!(
            "{}: the loader takes no preload library whose path has a colon or a space in it; set NETCHAN_PRELOAD to a copy elsewhere",
            library.display()
        )));
    }
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    Ok(list)
}
