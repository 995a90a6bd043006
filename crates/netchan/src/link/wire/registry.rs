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

use parking_lot::Mutex;

use super::{Direction, Incoming, Options, Wire, direction};

/// Where the second opener leaves the half that the first one receives on.
#[derive(Debug, Default)]
pub(super) struct Slot {
    filled: AtomicBool,
    half: Mutex<Option<Incoming>>,
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

/// A name in use.
enum Entry {
    /// One end is open; the other waits here.
    Half {
        incoming: Incoming,
        slot: Weak<Slot>,
        options: Options,
    },
    /// Both are; the name is free again when both are gone.
    Whole([Weak<Direction>; 2]),
}

static NAMES: Mutex<Option<HashMap<String, Entry>>> = Mutex::new(None);

/// Opens an end of the wire `name`: the first, or the second of one that is half open. `options` is for what this end
/// sends; a second opener who has none takes those of the first.
///
/// # Errors
/// A sentence: both ends are in use, or the two disagree on the MTU.
pub(crate) fn open(name: &str, options: Option<&Options>) -> Result<Wire, String> {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    names.retain(|_, entry| match entry {
        Entry::Half { slot, .. } => slot.strong_count() > 0,
        Entry::Whole(directions) => directions.iter().any(|d| d.strong_count() > 0),
    });
    let label = if name.is_empty() {
        "wire".to_owned()
    } else {
        format!("wire:{name}")
    };
    let Some(entry) = names.get_mut(name) else {
        let options = options.cloned().unwrap_or_default();
        let (out, incoming) = direction(&options, 0);
        let mut wire = Wire::new(&label, &options, 0, out);
        let slot = Arc::new(Slot::default());
        names.insert(
            name.to_owned(),
            Entry::Half {
                incoming,
                slot: Arc::downgrade(&slot),
                options,
            },
        );
        wire.slot = Some(slot);
        return Ok(wire);
    };
    let Entry::Half {
        options: first,
        slot,
        ..
    } = entry
    else {
        return Err("both ends of this wire are in use in this process".into());
    };
    let mine = options.unwrap_or(first).clone();
    let mine = Options {
        mac: options.and_then(|o| o.mac),
        ..mine
    };
    if mine.mtu != first.mtu {
        return Err(format!(
            "the other end of this wire has mtu={}, this one says mtu={}",
            first.mtu, mine.mtu
        ));
    }
    let Some(slot) = slot.upgrade() else {
        return Err("the other end of this wire was dropped just now; open it again".into());
    };
    let (out, theirs) = direction(&mine, 1);
    let mut wire = Wire::new(&label, &mine, 1, out);
    let whole = Entry::Whole([Arc::downgrade(&theirs.direction), Weak::new()]);
    if let Entry::Half { incoming, .. } = std::mem::replace(entry, whole) {
        if let Entry::Whole([_, second]) = entry {
            *second = Arc::downgrade(&incoming.direction);
        }
        wire.incoming = Some(incoming);
    }
    slot.put(theirs);
    Ok(wire)
}
