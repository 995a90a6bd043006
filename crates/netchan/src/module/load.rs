//! Loading and unloading: at boot from a [`Builder`](crate::Builder), later through a running [`Net`].

use std::{io, sync::Arc};

use super::{
    Boxed, Concurrency, Point,
    registry::{Entry, Registry},
};
use crate::{errno::invalid, net::Net, regime::Regime, stack::Stack};

/// The regime that a stack with these modules gets: `giant` where one needs Giant, with a warning that names it (F3, degraded mode).
/// Beside it the reason, for `netchan show settings`.
pub(crate) fn regime_with(modules: &[Boxed], regime: Regime) -> (Regime, Option<String>) {
    let needs = |module: &&Boxed| module.concurrency() == Concurrency::Giant;
    let names: Vec<_> = modules
        .iter()
        .filter(needs)
        .map(|m| m.module().name().to_owned())
        .collect();
    if names.is_empty() || regime == Regime::Giant {
        return (regime, None);
    }
    let (names, need) = (
        names.join("', '"),
        if names.len() == 1 { "needs" } else { "need" },
    );
    let why = format!("module '{names}' {need} Giant; the regime would be {regime}");
    eprintln!("netchan: warning: {why}: the whole stack runs under Giant (degraded mode)");
    (Regime::Giant, Some(why))
}

/// Takes in the modules that are there at boot.
pub(crate) fn at_boot(registry: &Registry, modules: Vec<Boxed>) -> io::Result<()> {
    for module in modules {
        let entry = registry.add(module, true)?;
        warn_forward(&entry);
    }
    Ok(())
}

fn warn_forward(entry: &Entry) {
    if entry.points.contains(&Point::Forward) {
        eprintln!(
            "netchan: warning: module '{}' wants to see forwarded packets, but this version forwards none",
            entry.name
        );
    }
}

impl Net {
    /// Loads a module into the running stack, behind those that are there. When this returns, it sees every packet.
    ///
    /// One that needs Giant runs under Giant alone, with a warning on stderr; the rest of the stack does not (F3).
    /// Waits until each half of each interface has a moment; not to be called from within a module.
    ///
    /// # Errors
    /// `InvalidInput`: its name is none or is taken, or there are too many modules.
    pub fn load_module(&self, module: Boxed) -> io::Result<()> {
        let stack = self.stack();
        let _changing = stack.modules.changing.lock();
        let entry = stack.modules.add(module, false)?;
        warn_forward(&entry);
        if entry.concurrency() == Concurrency::Giant && stack.giant.is_none() {
            eprintln!(
                "netchan: warning: module '{}' needs Giant: it runs under Giant alone, the rest of the stack without it",
                entry.name
            );
        }
        each_half(stack, &entry, true);
        Ok(())
    }

    /// Unloads a module. When this returns, it sees no packet any more, and is dropped as soon as nobody looks at it.
    ///
    /// # Errors
    /// `InvalidInput`: there is none of this name.
    pub fn unload_module(&self, name: &str) -> io::Result<()> {
        let stack = self.stack();
        let _changing = stack.modules.changing.lock();
        let entry = stack
            .modules
            .entries()
            .into_iter()
            .find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| invalid(format!("there is no module '{name}'")))?;
        each_half(stack, &entry, false);
        stack.modules.remove(&entry);
        Ok(())
    }
}

fn each_half(stack: &Stack, entry: &Arc<Entry>, open: bool) {
    for number in 0..stack.ports.len() {
        stack.with_receive(number, |half| {
            if open {
                half.modules.open(entry)
            } else {
                half.modules.close(entry)
            }
        });
        stack.with_interface(number, |half| {
            if open {
                half.modules.open(entry)
            } else {
                half.modules.close(entry)
            }
        });
    }
}
