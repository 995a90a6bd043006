//! `netchan address`, `route`, `set` and `module`: what changes in a running stack while packets flow, asked for through its control socket.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Subcommand;
use netchan::control::{Change, Stack};
use serde_json::json;

use crate::{
    failure::{Failure, Outcome, at, failed, usage},
    output::{print, print_json, printable},
    show::choose,
    table,
};

/// Which stack, and how the answer is printed.
#[derive(clap::Args)]
struct Asked {
    /// This stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Adds an address to a link of a running stack, or removes one
#[derive(clap::Args)]
#[command(
    after_help = "The link announces a new address at once. Connections from one that is removed stay, as in Linux: what they send is dropped.\n\n\
        Examples:\n  netchan address add 10.77.0.3/24\n  netchan address del 10.77.0.3 --link nc0"
)]
pub struct Address {
    #[command(subcommand)]
    action: AddressAction,
}

#[derive(Subcommand)]
enum AddressAction {
    /// Adds an address
    Add(AddressOf),
    /// Removes an address
    #[command(visible_alias = "delete")]
    Del(AddressOf),
}

#[derive(clap::Args)]
struct AddressOf {
    /// With its prefix length (10.0.0.2/24); to remove it, also without
    address: String,
    /// The link, where there are several
    #[arg(long, default_value = "")]
    link: String,
    #[command(flatten)]
    asked: Asked,
}

/// Adds a route of a running stack, or removes one
#[derive(clap::Args)]
#[command(
    after_help = "A route by the same link to the same network is replaced. Connections that go where their route leads follow it.\n\n\
        Examples:\n  netchan route add 10.0.0.0/8 --via 10.77.0.1\n  netchan route add default --via 10.77.0.1 --mark 7\n  netchan route del 10.0.0.0/8"
)]
pub struct Route {
    #[command(subcommand)]
    action: RouteAction,
}

#[derive(Subcommand)]
enum RouteAction {
    /// Adds a route
    Add {
        /// 10.0.0.0/8, fd00::/8; `default`: all of the gateway's family
        network: String,
        /// The router's address (without it, all of the network is on the link)
        #[arg(long, value_name = "GATEWAY")]
        via: Option<String>,
        /// The link, where there are several
        #[arg(long, default_value = "")]
        link: String,
        /// For what is marked so (SO_MARK) only
        #[arg(long, default_value_t = 0)]
        mark: u32,
        #[command(flatten)]
        asked: Asked,
    },
    /// Removes a route
    #[command(visible_alias = "delete")]
    Del {
        /// 10.0.0.0/8, fd00::/8; `default`: 0.0.0.0/0
        network: String,
        /// The link (without it, whichever)
        #[arg(long, default_value = "")]
        link: String,
        /// That for what is marked so
        #[arg(long, default_value_t = 0)]
        mark: u32,
        #[command(flatten)]
        asked: Asked,
    },
}

/// Changes a setting of a running stack
#[derive(clap::Args)]
#[command(
    after_help = "`netchan show settings` has the names and the values; one of the start is not changed, and the answer says where it is set.\n\n\
        Examples:\n  netchan set tcp.congestion bbr\n  netchan set link.nc0.mtu 1400\n  netchan set trace all --pid 4711"
)]
pub struct Set {
    /// The setting, as `netchan show settings` has it
    name: String,
    /// As a configuration file has it; a word without quotes
    value: String,
    #[command(flatten)]
    asked: Asked,
}

/// Lists, loads, changes or unloads modules of a running stack
#[derive(clap::Args)]
#[command(
    after_help = "A module's settings are those of [[module]] in a configuration file.\n\n\
        Examples:\n  netchan module list\n  netchan module load firewall 'rules=[\"drop in proto tcp to 0.0.0.0/0 port 23\"]'\n  netchan module load --config modules.toml\n  \
        netchan module load wall kind=firewall file=rules.nft\n  netchan module replace wall file=rules.nft\n  netchan module unload firewall"
)]
pub struct Module {
    #[command(subcommand)]
    action: ModuleAction,
}

#[derive(Subcommand)]
enum ModuleAction {
    /// Shows the modules
    List(Asked),
    /// Loads a module, behind those that are there
    Load {
        /// Its name
        #[arg(required_unless_present = "config")]
        name: Option<String>,
        /// Its settings
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// A file that holds [[module]] tables and nothing else
        #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "settings"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Gives a firewall other rules while packets flow: its flows stay, and where there is an error, so do its rules
    Replace {
        /// Its name
        #[arg(required_unless_present = "config")]
        name: Option<String>,
        /// Its rules: file=FILE
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// A file that holds [[module]] tables and nothing else
        #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "settings"])]
        config: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Unloads a module
    Unload {
        /// Its name
        name: String,
        #[command(flatten)]
        asked: Asked,
    },
}

/// Runs `netchan address`.
pub fn address(arguments: &Address) -> Outcome {
    let of = |of: &AddressOf| (of.link.clone(), of.address.clone());
    match &arguments.action {
        AddressAction::Add(what) => {
            let (link, address) = of(what);
            change(&what.asked, &Change::AddAddress { link, address })
        }
        AddressAction::Del(what) => {
            let (link, address) = of(what);
            change(&what.asked, &Change::RemoveAddress { link, address })
        }
    }
}

/// Runs `netchan route`.
pub fn route(arguments: &Route) -> Outcome {
    match &arguments.action {
        RouteAction::Add {
            network,
            via,
            link,
            mark,
            asked,
        } => {
            let is_default = network == "default";
            if is_default && via.is_none() {
                return Err(usage("a default route needs --via GATEWAY"));
            }
            let to = if is_default { "" } else { network };
            let route = Change::AddRoute {
                link: link.clone(),
                to: to.to_owned(),
                gateway: via.clone(),
                mark: *mark,
            };
            change(asked, &route)
        }
        RouteAction::Del {
            network,
            link,
            mark,
            asked,
        } => {
            let to = match network.as_str() {
                "default" => "0.0.0.0/0",
                network => network,
            };
            let route = Change::RemoveRoute {
                link: link.clone(),
                to: to.to_owned(),
                mark: *mark,
            };
            change(asked, &route)
        }
    }
}

/// Runs `netchan set`.
pub fn set(arguments: &Set) -> Outcome {
    let setting = Change::Set {
        name: arguments.name.clone(),
        value: arguments.value.clone(),
    };
    change(&arguments.asked, &setting)
}

/// Runs `netchan module`.
pub fn module(arguments: &Module) -> Outcome {
    match &arguments.action {
        ModuleAction::List(asked) => list(asked),
        ModuleAction::Load {
            name,
            settings,
            config,
            asked,
        } => {
            let toml = toml(config.as_deref(), name.as_deref(), settings)?;
            change(asked, &Change::LoadModule { toml })
        }
        ModuleAction::Replace {
            name,
            settings,
            config,
            asked,
        } => {
            let mut settings = settings.clone();
            if !settings.iter().any(|setting| setting.starts_with("kind=")) {
                settings.push("kind=firewall".to_owned());
            }
            let toml = toml(config.as_deref(), name.as_deref(), &settings)?;
            change(asked, &Change::ReplaceModule { toml })
        }
        ModuleAction::Unload { name, asked } => {
            let name = name.clone();
            change(asked, &Change::UnloadModule { name })
        }
    }
}

fn list(asked: &Asked) -> Outcome {
    let stack = only(asked)?;
    let facts = stack.show("modules").map_err(|e| refused(&stack, &e))?;
    if asked.json {
        return print_json(&facts);
    }
    print(&table::render(&facts))
}

/// The `[[module]]` tables of a file, or one of settings.
fn toml(config: Option<&Path>, name: Option<&str>, settings: &[String]) -> Result<String, Failure> {
    match config {
        Some(file) => fs::read_to_string(file).map_err(at(file.display())),
        None => module_table(name.unwrap_or_default(), settings),
    }
}

/// A `[[module]]` table of `KEY=VALUE` settings; a value that is not TOML is text. A file of rules is read here: the stack may be elsewhere.
fn module_table(name: &str, settings: &[String]) -> Result<String, Failure> {
    let mut table = format!("[[module]]\nname = {}\n", json!(name));
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(usage(format!("`{setting}` is not KEY=VALUE")));
        };
        let is_toml = value.starts_with(['[', '"', '\'', '{'])
            || value.parse::<f64>().is_ok()
            || value.parse::<bool>().is_ok();
        let value = match is_toml {
            true => value.to_owned(),
            false => json!(value).to_string(),
        };
        table += &format!("{} = {value}\n", key.trim());
        if key.trim() == "file" {
            let name = setting.split_once('=').map_or("", |(_, file)| file);
            let rules = fs::read_to_string(name).map_err(at(name))?;
            table += &format!("ruleset = {}\n", json!(rules));
        }
    }
    Ok(table)
}

/// The one stack that is meant: a change goes to no other.
fn only(asked: &Asked) -> Result<Stack, Failure> {
    let mut stacks = choose(asked.pid.as_deref())?;
    match (stacks.pop(), stacks.is_empty()) {
        (Some(stack), true) => Ok(stack),
        (last, _) => {
            let ids: Vec<String> = stacks.into_iter().chain(last).map(|s| s.id).collect();
            let ids = ids.join(", ");
            Err(failed(format!(
                "several stacks run ({ids}): name one with --pid"
            )))
        }
    }
}

fn refused(stack: &Stack, why: &dyn std::fmt::Display) -> Failure {
    failed(format!("{}: {}", stack.id, printable(&why.to_string())))
}

fn change(asked: &Asked, change: &Change) -> Outcome {
    let stack = only(asked)?;
    let done = stack.change(change).map_err(|e| refused(&stack, &e))?;
    if asked.json {
        return print_json(&json!({ "stack": stack.id, "done": done }));
    }
    print(&format!("{}\n", printable(&done)))
}

#[cfg(test)]
mod tests {
    use super::module_table;

    #[test]
    fn settings_become_a_table() {
        let settings = [
            "kind=filter",
            "rules=[\"drop in\"]",
            "table=4096",
            "default=it's \"so\"",
        ];
        let table = module_table("f", &settings.map(str::to_owned)).unwrap_or_default();
        assert_eq!(
            table,
            "[[module]]\nname = \"f\"\nkind = \"filter\"\nrules = [\"drop in\"]\ntable = 4096\ndefault = \"it's \\\"so\\\"\"\n"
        );
        assert!(module_table("f", &["rules".to_owned()]).is_err());
    }

    #[test]
    fn a_file_of_rules_is_read_here() {
        let file = std::env::temp_dir().join(format!("netchan-change-{}.nft", std::process::id()));
        std::fs::write(&file, "flush ruleset\n\"x\"\n").unwrap_or_default();
        let setting = format!("file={}", file.display());
        let table = module_table("w", std::slice::from_ref(&setting)).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        assert!(
            table.ends_with("\nruleset = \"flush ruleset\\n\\\"x\\\"\\n\"\n"),
            "{table}"
        );
        assert!(module_table("w", &[setting]).is_err(), "it is gone");
    }
}
