//! `netchan daemon`: owns links and addresses, and lends parts of them to the programs of this machine.
//!
//! | file in `daemon` | what it holds |
//! | --- | --- |
//! | `socket` | the socket at which leases are asked for |
//! | `rules` | users and groups of the rules, by their names |

use std::{
    env, fs,
    net::Ipv4Addr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use clap::builder::PossibleValuesParser;
use netchan::{Net, Regime, config::Config};
use netchan_lend::Service;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets, set_capabilities},
};
use sd_notify::NotifyState;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

mod rules;
mod socket;

use self::socket::Listening;
use crate::{
    failure::{Failure, Outcome, at, failed, usage},
    log,
    run::{self, sandbox},
    user::{self, User},
};

/// Owns links and addresses, and lends them to programs
#[derive(clap::Args)]
#[command(
    after_help = "Programs take a part of a link from it: `netchan run --link daemon COMMAND`. They share its addresses, as with a kernel; what they send is checked here. With --loopback here and there they share 127.0.0.0/8 and ::1, too. Ports below 1024 are \
        root's, and those that a [[lease]] table of the configuration gives to a user, a group or a program. SIGHUP reads these tables again; links stay as they are until it is \
        started anew. SIGTERM ends it, and with it all leases.\n\n\
        The socket is /run/netchan/daemon.sock where it is started by root, which may give up its rights with --user; else it is for its own user alone, below $XDG_RUNTIME_DIR. systemd may hand it over \
        (dist/netchan.socket).\n\n\
        Examples:\n  netchan daemon --config /etc/netchan/netchan.toml --user netchan\n  \
        netchan daemon --link tap:nc0,peer=10.77.0.1/24 --address 10.77.0.2/24 --gateway 10.77.0.1\n  \
        netchan run --link daemon -- redis-server --port 6379"
)]
pub struct Arguments {
    /// Where packets enter and leave. The text for people has brackets, which rustdoc would take for a link.
    #[arg(
        long,
        value_name = "LINK",
        conflicts_with = "config",
        help = "Where packets enter and leave: KIND[:NAME][,option=value]..., such as tap:nc0 or packet:eth0"
    )]
    link: Option<String>,
    /// An address with its prefix length, such as 10.77.0.2/24 or fd77::2/64 (may be repeated)
    #[arg(long, value_name = "ADDRESS/PREFIX", conflicts_with = "config")]
    address: Vec<String>,
    /// The default gateway; once for each family
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    gateway: Vec<String>,
    /// How work is placed on cores (default: app-channel)
    #[arg(long, value_name = "REGIME", value_parser = PossibleValuesParser::new(Regime::here().map(Regime::name)))]
    regime: Option<String>,
    /// Lend 127.0.0.0/8 and ::1, too: the programs that run with --loopback share them, as with a kernel
    #[arg(long)]
    loopback: bool,
    /// Take links, addresses, rules and settings from this file instead
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Where programs ask for leases
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// Give up all rights but those of this user, named or by number, once the links are open
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

/// Runs the command, until a signal ends it.
pub fn daemon(arguments: &Arguments, flags: &log::Flags) -> Outcome {
    let config = load(arguments)?;
    log::begin(&flags.over(config.log.clone()))?;
    let settings = run::settings(&as_run(arguments)?)?;
    let rules = rules::of(&config).map_err(|why| in_file(arguments, &why))?;
    let user = arguments.user.as_deref().map(find).transpose()?;
    // Before anything else is there: a signal that comes early ends it in order, too.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(at("signals"))?;
    let listening = socket::open(arguments.socket.as_deref())?;
    let place = listening.name();
    let builder = run::builder(&settings)?.lends_loopback(true);
    raise_limit();
    give_up_rights(user.as_ref(), &config, &listening)?;
    let net = builder
        .start()
        .map_err(|e| failed(format!("the stack does not start: {e}")))?;
    let ended = Ended(signals.handle());
    let service = Service::start(Some(Box::new(listening)), &net, rules, ended);
    let service = service.map_err(at("netchan-lease"))?;
    let loopback = match net.is_local(Ipv4Addr::LOCALHOST.into()) {
        true => " and 127.0.0.0/8 and ::1",
        false => "",
    };
    tracing::info!(target: "netchan::daemon", "lends {}{loopback} at {place}", links(&net));
    notify(&[NotifyState::Ready]);
    let mut asked = false;
    for signal in signals.forever() {
        if signal != SIGHUP {
            asked = true;
            break;
        }
        reload(arguments, &service);
    }
    notify(&[NotifyState::Stopping]);
    match service.stop() && asked {
        true => Ok(()),
        false => Err(failed("the thread that answers has ended by itself")),
    }
}

/// Lends `net`'s links at a socket that is found by its name alone. [`Lending::stop`] ends it.
pub struct Lending {
    service: Service,
    place: Unlisted,
}

/// Its socket's path. Dropping it removes the directory, also where the run comes to nothing.
struct Unlisted(PathBuf);

impl Drop for Unlisted {
    fn drop(&mut self) {
        if let Some(directory) = self.0.parent() {
            let _ = fs::remove_dir_all(directory); // in /tmp, which is cleaned
        }
    }
}

impl Lending {
    /// Begins; `config` has the rules.
    ///
    /// # Errors
    /// A rule that makes no sense; the system's.
    pub fn start(net: &Net, config: &Config) -> Result<Self, Failure> {
        let rules = rules::of(config).map_err(failed)?;
        let place = Unlisted(socket::unlisted()?);
        let listening = socket::listen_unlisted(&place.0)?;
        let service = Service::start(Some(Box::new(listening)), net, rules, ());
        let service = service.map_err(at("netchan-lease"))?;
        Ok(Self { service, place })
    }

    /// Where programs ask.
    pub fn path(&self) -> &Path {
        &self.place.0
    }

    /// No lease is there any more.
    pub fn stop(self) {
        self.service.stop();
    }
}

/// The links with their addresses, for people.
fn links(net: &Net) -> String {
    let link = |link: &netchan::LinkFacts| {
        let addresses = link.addresses.iter();
        let addresses = addresses.map(|(ip, prefix)| format!("{ip}/{prefix}"));
        match addresses.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => link.name.clone(),
            all => format!("{} ({all})", link.name),
        }
    };
    let links: Vec<_> = net.links().iter().map(link).collect();
    links.join(" and ")
}

fn load(arguments: &Arguments) -> Result<Config, Failure> {
    let loaded = arguments.config.as_deref().map(Config::load);
    Ok(loaded.transpose().map_err(failed)?.unwrap_or_default())
}

/// What of the options `netchan run` has, too.
fn as_run(arguments: &Arguments) -> Result<run::Arguments, Failure> {
    if arguments.link.is_none() && arguments.config.is_none() {
        return Err(usage(
            "which links? --config FILE, or --link tap:nc0 --address 10.77.0.2/24",
        ));
    }
    Ok(run::Arguments {
        link: arguments.link.clone(),
        address: arguments.address.clone(),
        gateway: arguments.gateway.clone(),
        regime: arguments.regime.clone(),
        loopback: arguments.loopback,
        config: arguments.config.clone(),
        ..run::Arguments::default()
    })
}

fn find(wanted: &str) -> Result<User, Failure> {
    user::find(wanted).ok_or_else(|| usage(format!("--user: there is no user {wanted}")))
}

fn in_file(arguments: &Arguments, why: &str) -> Failure {
    let file = arguments.config.as_deref().unwrap_or(Path::new(""));
    failed(format!("{}: {why}", file.display()))
}

/// A connection and a lease take a handful of descriptors each.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    if current.is_some_and(|current| current < wanted) {
        let current = Some(wanted);
        // With fewer it serves fewer.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
}

/// For 4,096 connections: the socket, the process, five files of the lease and what the stack has for it.
const DESCRIPTORS: u64 = 1 << 16;

/// Leaves what takes rights behind. This process has one thread still: those that it starts inherit what it has become.
fn give_up_rights(user: Option<&User>, config: &Config, listening: &Listening) -> Outcome {
    if let Some(user) = user {
        let became = user.become_it();
        became.map_err(|e| failed(format!("cannot become user {}: {e}", user.name)))?;
    }
    if !rustix::process::geteuid().is_root() {
        // Those that systemd or a file gave, for the links.
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).map_err(at("giving up capabilities"))?;
    }
    // Landlock hides the files of other processes' programs, too.
    let looks_at_programs = config.leases.iter().any(|lease| lease.program.is_some());
    if !looks_at_programs {
        // Where sockets lie: this one, and that of `netchan show`.
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(|at| PathBuf::from(at).join("netchan"));
        if let Some(runtime) = &runtime {
            let _ = fs::DirBuilder::new().mode(0o700).create(runtime); // another user's is passed over
        }
        let own = listening.directory().map(Path::to_owned);
        let places = [own, runtime, Some("/run/netchan".into())]
            .into_iter()
            .flatten();
        let writable: Vec<_> = places.filter(|place| place.is_dir()).collect();
        confined("Landlock", sandbox::confine_files(&writable));
    }
    confined("seccomp", sandbox::refuse_calls());
    Ok(())
}

/// A kernel that cannot do it is served without.
fn confined(by: &str, done: Result<(), String>) {
    if let Err(why) = done {
        tracing::warn!(target: "netchan::daemon", "not confined by {by}: {why}");
    }
}

/// Reads the rules again. Those of before stay where the file is wrong.
fn reload(arguments: &Arguments, service: &Service) {
    let Some(file) = &arguments.config else {
        tracing::warn!(target: "netchan::daemon", "SIGHUP: there is no configuration file to read again");
        return;
    };
    let rules = Config::load(file).map_err(|e| e.to_string());
    let rules = rules
        .and_then(|config| rules::of(&config).map_err(|why| format!("{}: {why}", file.display())));
    match rules {
        Ok(rules) => {
            let count = rules.count();
            service.set(rules);
            tracing::info!(
                target: "netchan::daemon",
                "{}: {count} [[lease]] tables hold from now on; links and settings stay as they are until the daemon is started anew",
                file.display()
            );
        }
        Err(why) => {
            tracing::error!(target: "netchan::daemon", "{why}; the rules stay as they were");
        }
    }
}

/// Tells the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        tracing::warn!(target: "netchan::daemon", "cannot tell the service manager: {e}");
    }
}

/// Ends the wait for signals when the thread that answers ends.
struct Ended(Handle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.close();
    }
}
