//! How `netchan run` tells the programs that it starts which stack to build: environment variables, named in this one place.

use std::io;

use crate::{
    Builder, Net, Regime,
    config::Config,
    errno::invalid,
    link::{
        lease::{self, Client, LeasedLink},
        specification::{self, Kind, Specification},
    },
    log::Verbosity,
    units,
};

mod door;
mod go;
pub(crate) mod handed;
mod kernels;
mod links;

use handed::{Handed, take};

pub use door::Door;
pub use go::is_go;
pub use handed::{HandedOn, guard, hand_on, inherit, is_incomplete, is_unused};
pub use kernels::Kernels;
pub use links::{links_of, links_said};

/// The link's specification, `KIND[:NAME][,option=value]...`.
pub const LINK: &str = "NETCHAN_LINK";
/// The link's addresses with prefix lengths, separated by commas.
pub const ADDRESS: &str = "NETCHAN_ADDRESS";
/// The link's default gateways, separated by commas; at most one for each family.
pub const GATEWAY: &str = "NETCHAN_GATEWAY";
/// The regime's name.
pub const REGIME: &str = "NETCHAN_REGIME";
/// `true` puts Giant around everything.
pub const GIANT: &str = "NETCHAN_GIANT";
/// Where protocol work runs: `direct`, `deferred` or `hybrid`.
pub const DISPATCH: &str = "NETCHAN_DISPATCH";
/// For how long a thread that waits looks before it sleeps: `50us`, 0 to `10ms`.
pub const SPIN: &str = "NETCHAN_SPIN";
/// `true` passes packets for other hosts on between the links.
pub const FORWARDING: &str = "NETCHAN_FORWARDING";
/// `true` makes 127.0.0.0/8 and ::1 the stack's own, instead of the kernel's. It needs no link then.
pub const LOOPBACK: &str = "NETCHAN_LOOPBACK";
/// A configuration file, instead of link, addresses and gateways; [`REGIME`], [`GIANT`], [`DISPATCH`], [`SPIN`], [`FORWARDING`] and [`LOOPBACK`] go before what it says.
pub const CONFIG: &str = "NETCHAN_CONFIG";
/// Further address prefixes that stay with the kernel's stack, separated by commas; loopback does without [`LOOPBACK`].
pub const KERNEL: &str = "NETCHAN_KERNEL";
/// What it tells by itself: `quiet`, `usual` or `verbose` ([`Verbosity`]).
pub const LOG: &str = "NETCHAN_LOG";
/// The file that this is appended to, in place of stderr.
pub const LOG_FILE: &str = "NETCHAN_LOG_FILE";
/// Those that say what a stack is to be.
pub const OF_A_STACK: [&str; 13] = [
    LINK, ADDRESS, GATEWAY, REGIME, GIANT, DISPATCH, SPIN, FORWARDING, LOOPBACK, CONFIG, KERNEL,
    LOG, LOG_FILE,
];

/// Set by a process that has started its stack, for its children: the id of the process that holds the links. While it
/// or a keeper of its stack lives, other processes use the kernel's stack, unless [`LENT`] or [`DOOR`] is set.
pub const OWNER: &str = "NETCHAN_OWNER";

/// Set by a process whose stack's links are all a daemon's: other processes may have stacks beside it.
pub const LENT: &str = "NETCHAN_LENT";

/// Where the process that has the links lends them to the others of the run ([`Door`]). Set by `netchan run`, so that those know it, too, whose environment is
/// older than the stack; without it by the process that starts a stack. Empty: they cannot be lent. Where no process listens, the next one to start a stack may
/// have the links.
pub const DOOR: &str = "NETCHAN_DOOR";

/// Set by a process that has served others and becomes another program, for that: its id. What comes for the old program is to be refused.
pub const SERVED: &str = "NETCHAN_SERVED";

/// Links that are open already, as [`hand_on`] names them. Each is still said by [`LINK`] or [`CONFIG`], and opened by its name where the
/// program has closed it.
pub const DESCRIPTORS: &str = "NETCHAN_DESCRIPTORS";

/// Set by `netchan run` where the stack is in its own process, which answers the program's calls: its process id. The library only puts heads
/// before datagrams then.
pub const SUPERVISED: &str = "NETCHAN_SUPERVISED";

/// The stack's links then ([`links_said`]), which the library shows the program with the kernel's interfaces.
pub const INTERFACES: &str = "NETCHAN_INTERFACES";

/// What `netchan run` became: its process id, a blank, and its name as it was given.
pub const PROGRAM: &str = "NETCHAN_PROGRAM";
/// What to say once the stack runs.
pub const ANNOUNCE: &str = "NETCHAN_ANNOUNCE";

/// A builder with the settings of the variables that `variable` looks up (`None`: not set).
///
/// # Errors
/// `InvalidInput` when neither [`LINK`] nor [`CONFIG`] nor [`LOOPBACK`] is set or both of the first two are, and for every value that is not understood; the
/// message names the variable. The system's error, in words, for a link that cannot be opened.
pub fn builder(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Builder> {
    let handed = || variable(DESCRIPTORS).map_or_else(|| Ok(Handed::default()), |v| take(&v));
    let link = match (variable(LINK), variable(CONFIG)) {
        (Some(link), None) => Some(link),
        (None, Some(path)) => return finish(from_file(&path, handed()?)?, variable),
        (Some(_), Some(_)) => {
            return Err(invalid(format!("{LINK} and {CONFIG} exclude each other")));
        }
        (None, None) if variable(LOOPBACK).is_some() => None,
        (None, None) => return Err(invalid(format!("neither {LINK} nor {CONFIG} is set"))),
    };
    let mut builder = Net::builder();
    if let Some(link) = link {
        // What is wrong with a link names it.
        let parsed = specification::parse(&link)?;
        leads_somewhere(std::slice::from_ref(&parsed))?;
        builder = builder.handed(handed()?).link(&link)?;
    } else {
        builder = builder.handed(handed()?);
    }
    for address in list(variable(ADDRESS).as_deref()) {
        builder = builder
            .address(address)
            .map_err(|e| in_variable(ADDRESS, &e))?;
    }
    for gateway in list(variable(GATEWAY).as_deref()) {
        builder = builder
            .gateway(gateway)
            .map_err(|e| in_variable(GATEWAY, &e))?;
    }
    finish(builder, variable)
}

/// A builder for a process to which another one lends its links: by their names, each with a connection to the lender, which wants to hear `secret`. The
/// settings are as [`builder`]'s; addresses, routes, modules and forwarding are the lender's business.
///
/// # Errors
/// As for [`builder`]; the lender's.
pub fn builder_on(
    lent: Vec<(String, Client)>,
    secret: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> io::Result<Builder> {
    let mut builder = Net::builder();
    if let Some(path) = variable(CONFIG) {
        let settings = Config {
            links: Vec::new(),
            modules: Vec::new(),
            forwarding: None,
            ..config(&path, None)?
        };
        builder = builder.configured(&settings)?;
    }
    for (link, lender) in lent {
        let options = lease::Options {
            link,
            secret: secret.to_owned(),
            ..lease::Options::default()
        };
        let link = LeasedLink::attach(lender, &options)?;
        builder = builder.link_with(Box::new(link));
    }
    let own = |name: &str| variable(name).filter(|_| name != FORWARDING);
    finish(builder, &own)
}

/// What goes for both ways: regime, Giant, dispatch and forwarding, and an answer for `netchan show`.
fn finish(builder: Builder, variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Builder> {
    let mut builder = builder.control(true);
    if let Some(name) = variable(REGIME) {
        builder = builder
            .said_by(REGIME)
            .regime(regime(&name).map_err(|e| in_variable(REGIME, &e))?);
    }
    if let Some(giant) = variable(GIANT) {
        builder = builder.said_by(GIANT).giant(switch(GIANT, &giant)?);
    }
    if let Some(forwarding) = variable(FORWARDING) {
        let forwarding = switch(FORWARDING, &forwarding)?;
        builder = builder.said_by(FORWARDING).forwarding(forwarding);
    }
    if let Some(loopback) = variable(LOOPBACK) {
        let loopback = switch(LOOPBACK, &loopback)?;
        builder = builder.said_by(LOOPBACK).loopback(loopback);
    }
    if let Some(name) = variable(DISPATCH) {
        let dispatch = name.parse().map_err(invalid);
        let dispatch = dispatch.map_err(|e| in_variable(DISPATCH, &e))?;
        builder = builder.said_by(DISPATCH).dispatch(dispatch);
    }
    if let Some(time) = variable(SPIN) {
        let time = units::duration(&time).map_err(|e| in_variable(SPIN, &invalid(e)))?;
        builder = builder.said_by(SPIN).spin(time);
    }
    builder.check()?;
    Ok(builder.said_by("program"))
}

/// How much is told.
///
/// # Errors
/// `InvalidInput` where [`LOG`] names none.
pub fn verbosity(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Verbosity> {
    let Some(name) = variable(LOG) else {
        return Ok(Verbosity::default());
    };
    let names = || Verbosity::ALL.map(Verbosity::name).join(", ");
    Verbosity::called(&name)
        .ok_or_else(|| invalid(format!("{LOG}: `{name}` is none of {}", names())))
}

/// Whether the stack of these variables is to have the loopback addresses: to be asked before it is started.
///
/// # Errors
/// As for [`builder`].
pub fn has_loopback(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<bool> {
    if let Some(loopback) = variable(LOOPBACK) {
        return switch(LOOPBACK, &loopback);
    }
    let Some(path) = variable(CONFIG) else {
        return Ok(false);
    };
    let handed = variable(DESCRIPTORS).and_then(|value| handed::config(&value));
    Ok(config(&path, handed.as_deref())?.loopback == Some(true))
}

/// A wire has its two ends in one process, in which this stack is alone.
fn leads_somewhere(links: &[Specification]) -> io::Result<()> {
    let wires = || links.iter().filter(|link| link.kind == Kind::Wire);
    let alone = |wire: &&Specification| wires().filter(|w| w.name == wire.name).count() < 2;
    match wires().find(alone) {
        None => Ok(()),
        Some(wire) => Err(invalid(format!(
            "link `{wire}` leads nowhere: a wire lies in memory, and nothing else in the program's process can open its other end; \
             a tap leads to this machine, a packet link to its network"
        ))),
    }
}

fn switch(name: &str, value: &str) -> io::Result<bool> {
    let what = |_| invalid(format!("{name}: '{value}' is neither true nor false"));
    value.parse().map_err(what)
}

/// What a configuration file says, whose text may have been handed over.
fn config(path: &str, text: Option<&str>) -> io::Result<Config> {
    let config = text.map_or_else(|| Config::load(path), |text| Config::parse(text, path));
    config.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))
}

fn from_file(path: &str, handed: Handed) -> io::Result<Builder> {
    let config = config(path, handed.config.as_deref())?;
    let links: Vec<_> = (config.links.iter())
        .map(|link| link.specification.clone())
        .collect();
    leads_somewhere(&links)?;
    let builder = Builder::default().handed(handed).configured(&config);
    builder.map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))
}

/// The parts of a comma-separated list, without blanks and empty parts.
fn list(value: Option<&str>) -> impl Iterator<Item = &str> {
    let parts = value.unwrap_or_default().split(',');
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// A regime by its name.
///
/// # Errors
/// `InvalidInput`, with the names that there are.
pub fn regime(name: &str) -> io::Result<Regime> {
    name.parse().map_err(invalid)
}

fn in_variable(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_forgive_blanks_and_empty_parts() {
        assert_eq!(
            list(Some(" 10.0.0.1/8 ,, fd00::1/64")).collect::<Vec<_>>(),
            ["10.0.0.1/8", "fd00::1/64"]
        );
        assert_eq!(list(None).count(), 0);
    }

    #[test]
    fn regimes_have_their_names() {
        assert_eq!(regime("locked").ok(), Some(Regime::Locked));
        assert!(regime("fast").is_err_and(|e| e.to_string().contains("app-channel")));
    }

    /// What comes of one more variable beside a link.
    fn with(variable: &str, value: &str) -> io::Result<Builder> {
        builder(&|name| match name {
            LINK => Some("loop".to_owned()),
            _ if name == variable => Some(value.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn forwarding_is_true_or_false() {
        assert!(with(FORWARDING, "true").is_ok() && with(FORWARDING, "false").is_ok());
        let error = with(FORWARDING, "perhaps").err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains(FORWARDING) && e.contains("perhaps")));
    }

    #[test]
    fn spin_is_a_time_up_to_ten_milliseconds() {
        let spins = |value| {
            let net = with(SPIN, value).and_then(Builder::start)?;
            Ok::<_, io::Error>(net.show("settings").unwrap().to_string())
        };
        let shown = spins("50us").unwrap();
        assert!(
            shown.contains(r#""name":"spin_ns","value":50000"#),
            "{shown}"
        );
        for (value, word) in [("soon", SPIN), ("11ms", "10 ms")] {
            let error = spins(value).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn neither_link_nor_file_is_an_error_that_names_both() {
        let error = builder(&|_| None)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(error.contains(LINK) && error.contains(CONFIG), "{error}");
    }
}
