//! A network namespace of one's own, without root where the system allows it.

use std::{fmt, fs, process::Command, process::Stdio};

use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use crate::netlink;

/// What this machine lets this user do, found out by trying in a child process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// How a namespace can be had.
    pub namespace: Option<Kind>,
    /// Why none can be had.
    pub namespace_error: Option<String>,
    /// Why a TAP device cannot be opened there; `None`: it can.
    pub tap_error: Option<String>,
    /// Why a pair of virtual Ethernet interfaces cannot be made there; `None`: it can.
    pub veth_error: Option<String>,
}

/// How a namespace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A network namespace, by a user who may (root).
    Network,
    /// A user namespace and in it a network namespace, by any user.
    User,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network namespace",
            Self::User => "user and network namespace",
        })
    }
}

/// Tries everything in a child process, so that this one stays where it is.
pub fn abilities() -> Abilities {
    let unknown = |why: String| Abilities {
        namespace_error: Some(why),
        ..Abilities::default()
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return unknown(format!("netchan cannot find itself: {e}")),
    };
    let child = Command::new(program)
        .args(["__inner", "probe"])
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match child {
        Ok(done) => serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|e| unknown(format!("the probe ended with {}: {e}", done.status))),
        Err(e) => unknown(e.to_string()),
    }
}

/// What the child does.
pub fn probe() -> Abilities {
    let mut found = Abilities::default();
    match enter_any() {
        Ok(kind) => found.namespace = Some(kind),
        Err(why) => {
            found.namespace_error = Some(why);
            return found;
        }
    }
    let tun = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    found.tap_error = tun.err().map(|e| format!("/dev/net/tun: {e}"));
    let veth = netlink::veth_pair("ncprobe0", "ncprobe1", 1500);
    found.veth_error = veth.err().map(|e| format!("making a veth pair: {e}"));
    found
}

fn enter_any() -> Result<Kind, String> {
    let mut refused = Vec::new();
    for kind in [Kind::Network, Kind::User] {
        match enter(kind) {
            Ok(()) => return Ok(kind),
            Err(why) => refused.push(format!("a {kind}: {why}")),
        }
    }
    Err(refused.join("; "))
}

/// Moves this process, which must have one thread only, into a new namespace whose loopback is up.
///
/// In a new user namespace this user is root, and so are the programs it starts: they may set up links there, and nothing elsewhere.
pub fn enter(kind: Kind) -> Result<(), String> {
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let flags = match kind {
        Kind::Network => UnshareFlags::NEWNET,
        Kind::User => UnshareFlags::NEWUSER | UnshareFlags::NEWNET,
    };
    #[allow(deprecated)] // what made it deprecated is the FILES flag, which is not given here
    rustix::thread::unshare(flags).map_err(|e| format!("unshare: {e}"))?;
    if kind == Kind::User {
        let write = |file: &str, line: String| {
            let path = format!("/proc/self/{file}");
            fs::write(&path, line).map_err(|e| format!("{path}: {e}"))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("0 {user} 1"))?;
        write("gid_map", format!("0 {group} 1"))?;
    }
    netlink::up("lo").map_err(|e| format!("bringing the loopback interface up: {e}"))
}
