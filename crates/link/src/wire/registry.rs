//! Wires with a name: `wire:a` opened twice in one process gives both ends.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use netchan_base::locks;
use percore::lock::{Mutex, mutex};

use super::{Direction, Incoming, Options, Wire, direction};

/// Where the second opener leaves the half that the first one receives on.
#[derive(Debug)]
pub(super) struct Slot {
    filled: AtomicBool,
    half: Mutex<Option<Incoming>>,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            filled: AtomicBool::new(false),
            half: mutex(&locks::WIRE_SLOT, None),
        }
    }
}

impl Slot {
    pub fn take(&self) -> Option<Incoming> {
        // pairs with Release in `put`
        if !self.filled.load(Acquire) {
            return None;
        }
        self.half.lock().take()
    }

    fn put(&self, half: Incoming) {
        *self.half.lock() = Some(half);
        // pairs with Acquire in `take`
        self.filled.store(true, Release);
    }
}

/// A wire of which one end is open.
struct Half {
    /// What the other end will receive on.
    incoming: Incoming,
    slot: Weak<Slot>,
    options: Options,
}

/// A name in use.
enum Entry {
    Half(Box<Half>),
    /// Both ends are open; the name is free again when both are gone.
    Whole([Weak<Direction>; 2]),
}

impl Entry {
    fn in_use(&self) -> bool {
        match self {
            Self::Half(half) => half.slot.strong_count() > 0,
            Self::Whole(directions) => directions.iter().any(|d| d.strong_count() > 0),
        }
    }
}

type Names = HashMap<String, Entry>;

static NAMES: Mutex<Option<Names>> = mutex(&locks::WIRE_NAMES, None);

/// Opens an end of the wire `name`: the first, or the second of one that is half open. `options` is for what this end
/// sends; a second opener that has none takes those of the first.
///
/// # Errors
/// A sentence: both ends are in use, or the two disagree on the MTU.
pub(crate) fn open(name: &str, options: Option<&Options>) -> Result<Wire, String> {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    names.retain(|_, entry| entry.in_use());
    match names.remove(name) {
        None => Ok(first(names, name, options.cloned().unwrap_or_default())),
        Some(Entry::Half(half)) => second(names, name, half, options),
        Some(whole) => {
            names.insert(name.to_owned(), whole);
            Err("both ends of this wire are in use in this process".into())
        }
    }
}

/// Forgets wires whose only open end was dropped, and frees what lies in them.
pub(super) fn sweep() {
    if let Some(names) = NAMES.lock().as_mut() {
        names.retain(|_, entry| entry.in_use());
    }
}

fn label(name: &str) -> String {
    if name.is_empty() {
        "wire".to_owned()
    } else {
        format!("wire:{name}")
    }
}

fn first(names: &mut Names, name: &str, options: Options) -> Wire {
    let (out, incoming) = direction(&options, 0);
    let mut wire = Wire::new(&label(name), &options, 0, out);
    let slot = Arc::new(Slot::default());
    let half = Half {
        incoming,
        slot: Arc::downgrade(&slot),
        options,
    };
    names.insert(name.to_owned(), Entry::Half(Box::new(half)));
    wire.rx.slot = Some(slot);
    wire
}

fn second(
    names: &mut Names,
    name: &str,
    half: Box<Half>,
    options: Option<&Options>,
) -> Result<Wire, String> {
    let mac = options.and_then(|own| own.mac);
    let options = Options {
        mac,
        ..options.unwrap_or(&half.options).clone()
    };
    if options.mtu != half.options.mtu {
        let what = format!(
            "the other end of this wire has mtu={}, this one says mtu={}",
            half.options.mtu, options.mtu
        );
        names.insert(name.to_owned(), Entry::Half(half));
        return Err(what);
    }
    let (out, theirs) = direction(&options, 1);
    let directions = [&theirs, &half.incoming].map(|incoming| Arc::downgrade(&incoming.direction));
    names.insert(name.to_owned(), Entry::Whole(directions));
    let mut wire = Wire::new(&label(name), &options, 1, out);
    wire.rx.incoming = Some(half.incoming);
    // Where the first end was dropped this very moment, `theirs` goes with it, and we are told that it is gone.
    if let Some(slot) = half.slot.upgrade() {
        slot.put(theirs);
    }
    Ok(wire)
}
