//! Loading and unloading: at boot from a [`Builder`](crate::Builder), later through a running [`Net`].

use std::{io, sync::Arc};

use crate::{
    config::{self, ModuleKind},
    errno::invalid,
    net::Net,
    regime::{Layout, Regime},
    show::look::{Busy, Look},
    stack::Stack,
};
use crate::{
    driver::module::{
        Boxed, Point,
        registry::{Entry, HookChain, Registry},
    },
    giant::Concurrency,
};

/// How long loading waits for the halves of the interfaces, nanoseconds: they are free thousands of times a second, unless a worker hangs.
const PATIENCE: u64 = 3_000_000_000;

/// Why a stack with these modules gets the regime `giant` (F3, degraded mode): one that needs Giant, where not everything is under it
/// anyway. A warning names it; the reason is for `netchan show settings`.
pub(crate) fn need_giant(modules: &[Boxed], regime: Regime, layout: Layout) -> Option<String> {
    let needs = |module: &&Boxed| module.concurrency() == Concurrency::Giant;
    let names: Vec<_> = modules
        .iter()
        .filter(needs)
        .map(|m| m.module().name().to_owned())
        .collect();
    if names.is_empty() || layout.giant {
        return None;
    }
    let (names, need) = (
        names.join("', '"),
        if names.len() == 1 { "needs" } else { "need" },
    );
    let why = format!("module '{names}' {need} Giant; the regime would be {regime}");
    tracing::warn!(
        target: "netchan::module",
        "warning: {why}: the whole stack runs under Giant (degraded mode)"
    );
    Some(why)
}

/// Takes in the modules that are there at boot.
pub(crate) fn at_boot(
    registry: &Registry,
    modules: Vec<Boxed>,
    forwarding: bool,
) -> io::Result<()> {
    for module in modules {
        let entry = registry.add(module, true, || Ok(registry.giant.enter()))?;
        warn_forward(&entry, forwarding);
    }
    Ok(())
}

/// One that looks nowhere else waits for packets that never come, where none are forwarded.
fn warn_forward(entry: &Entry, forwarding: bool) {
    if !forwarding && entry.points == [Point::Forward] {
        tracing::warn!(
            target: "netchan::module",
            module = %entry.name,
            "warning: module '{}' wants to see forwarded packets, but forwarding is off",
            entry.name
        );
    }
}

impl Net {
    /// Loads a module into the running stack, behind those that are there. When this returns, it sees every packet.
    ///
    /// One that needs Giant runs under Giant alone, with a warning; the rest of the stack does not (F3).
    /// Waits until each half of each interface has a moment; not to be called from within a module.
    ///
    /// # Errors
    /// `InvalidInput`: its name is none or is taken, or there are too many modules. `TimedOut`: a half has had no moment for three seconds,
    /// since a worker hangs; the message names it. Then the module is not loaded, nowhere.
    pub fn load_module(&self, module: Boxed) -> io::Result<()> {
        load(self.stack(), module)
    }

    /// Unloads a module. When this returns, it sees no packet any more, and is dropped as soon as no thread looks at it.
    ///
    /// # Errors
    /// `InvalidInput`: there is none of this name. `TimedOut`: a worker hangs, as for [`Self::load_module`]; the module sees nothing more, but stays
    /// in memory.
    pub fn unload_module(&self, name: &str) -> io::Result<()> {
        unload(self.stack(), name)
    }

    /// Gives a loaded module new settings, a firewall new rules, from one packet to the next: [`Module::configure`](crate::module::Module::configure).
    /// What was done, in a sentence.
    ///
    /// # Errors
    /// `InvalidInput`: there is none of this name, or it does not take them; it goes on with those that it has.
    pub fn configure_module(&self, name: &str, settings: &str) -> io::Result<String> {
        replace(self.stack(), name, settings).map_err(invalid)
    }
}

fn load(stack: &Stack, module: Boxed) -> io::Result<()> {
    let _changing = stack.control.modules.changing.lock();
    let look = Look::with_patience(stack, PATIENCE);
    let name = module.module().name().to_owned();
    let giant = || look.lock(|| stack.control.modules.giant.try_enter());
    let not_loaded = |busy: Busy| late(&format!("module '{name}' is not loaded: {busy}"));
    let entry = (stack.control.modules).add(module, false, || giant().map_err(&not_loaded))?;
    warn_forward(&entry, stack.control.host.forwarding);
    if entry.concurrency() == Concurrency::Giant && stack.giant.is_none() {
        tracing::warn!(
            target: "netchan::module",
            module = %entry.name,
            "warning: module '{}' needs Giant: it runs under Giant alone, the rest of the stack without it",
            entry.name
        );
    }
    if let Err(busy) = each_half(stack, &look, &entry, true) {
        entry.withdraw(); // where it cannot be taken off the list again
        let _ = each_half(stack, &look, &entry, false);
        stack.control.modules.remove(&entry, || giant().ok());
        return Err(not_loaded(busy));
    }
    Ok(())
}

pub(super) fn unload(stack: &Stack, name: &str) -> io::Result<()> {
    let _changing = stack.control.modules.changing.lock();
    let entry = stack
        .control
        .modules
        .entries()
        .into_iter()
        .find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| invalid(format!("there is no module '{name}'")))?;
    let look = Look::with_patience(stack, PATIENCE);
    let closed = each_half(stack, &look, &entry, false);
    if closed.is_err() {
        entry.withdraw();
    }
    let giant = || look.lock(|| stack.control.modules.giant.try_enter()).ok();
    stack.control.modules.remove(&entry, giant);
    let stays = |busy| {
        late(&format!(
            "module '{name}' sees nothing more, but stays in memory: {busy}"
        ))
    };
    closed.map_err(stays)
}

/// Loads the modules that `[[module]]` tables of a configuration describe; what was done.
///
/// # Errors
/// Why not, in a sentence. Those before the one that fails are loaded.
pub(super) fn load_toml(stack: &Stack, toml: &str) -> Result<String, String> {
    let modules = config::modules(toml)?;
    let mut names = Vec::new();
    for module in modules {
        let made = module.make().and_then(|made| load(stack, made));
        made.map_err(|e| e.to_string())?;
        names.push(module.name);
    }
    match names.as_slice() {
        [] => Err("there is no [[module]] in it".to_owned()),
        [name] => Ok(format!("module {name} is loaded")),
        names => Ok(format!("modules {} are loaded", names.join(", "))),
    }
}

/// Gives loaded modules the rules that `[[module]]` tables of a configuration describe; what was done.
///
/// # Errors
/// Why not, in a sentence. The one that fails goes on with what it had, those before it have changed.
pub(super) fn replace_toml(stack: &Stack, toml: &str) -> Result<String, String> {
    let mut done = Vec::new();
    for module in config::modules(toml)? {
        let name = &module.name;
        let (ModuleKind::Firewall(_), Some(rules)) = (&module.kind, &module.ruleset) else {
            return Err(format!(
                "module '{name}': a firewall's rules can be replaced; unload any other module, and load it again"
            ));
        };
        done.push(format!("module {name}: {}", replace(stack, name, rules)?));
    }
    match done.is_empty() {
        true => Err("there is no [[module]] in it".to_owned()),
        false => Ok(done.join("; ")),
    }
}

/// Gives a loaded module new settings; what was done, in a sentence.
fn replace(stack: &Stack, name: &str, settings: &str) -> Result<String, String> {
    let _changing = stack.control.modules.changing.lock();
    let mut entries = stack.control.modules.entries().into_iter();
    let entry = entries.find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| format!("there is no module '{name}'"))?;
    let look = Look::with_patience(stack, PATIENCE);
    let configured = look.lock(|| entry.configure(settings));
    configured.unwrap_or_else(|busy| Err(format!("module '{name}' keeps what it has: {busy}")))
}

fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Puts a module on the list of each half that wants it, or takes it off; the first half that could not be had.
fn each_half(stack: &Stack, look: &Look<'_>, entry: &Arc<Entry>, open: bool) -> Result<(), Busy> {
    let change = |chain: &mut HookChain| {
        if open {
            chain.add(entry);
        } else {
            chain.remove(entry);
        }
    };
    let mut all = Ok(());
    for number in 0..stack.driver.queues.len() {
        let received = look.receive(number, |half| {
            change(&mut half.arrival_modules);
            change(&mut half.modules);
            change(&mut half.forward_modules);
        });
        let sent = look.interface(number, |half| change(&mut half.modules));
        all = all.and(received).and(sent);
    }
    all
}
