//! A running stack: how a program opens one, what went wrong in words, and how one ends.

use std::{
    cell::RefCell,
    env,
    ffi::{CString, c_char},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use netchan::{Builder, Net, config::Config, environment};

use crate::{
    edge::{error, fail},
    sys,
    table::Table,
};

/// A stack that was opened. Its sockets keep it running.
pub struct Stack {
    /// Itself.
    pub net: Net,
    /// No other one of this process has it, nor had.
    pub number: u64,
}

/// Those whose handles C has.
static STACKS: Table<Stack> = Table::new(2);

/// What a handle names.
pub fn named(handle: usize) -> io::Result<Arc<Stack>> {
    STACKS.get(handle)
}

/// How a stack is described.
pub enum Described<'a> {
    /// By the variables of `netchan run`.
    Environment,
    /// By the text of a configuration file.
    Text(&'a str),
    /// As `--link`, `--address` and `--gateway` do.
    Link {
        /// `KIND[:NAME][,option=value]...`; `lo`: none but the loopback addresses.
        link: &'a str,
        /// Separated by commas.
        addresses: &'a str,
        /// The same.
        gateways: &'a str,
    },
}

/// Opens a stack; its handle. What is wrong with its description is kept for [`last_error`].
pub fn open(described: &Described<'_>) -> io::Result<usize> {
    sys::watch_forks();
    let started = builder(described).and_then(Builder::start);
    let net = started.inspect_err(|error| keep_error(&error.to_string()))?;
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let number = OPENED.fetch_add(1, Relaxed); // a name, nothing hangs on it
    STACKS.insert(Stack { net, number })
}

fn builder(described: &Described<'_>) -> io::Result<Builder> {
    let is_said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match described {
        Described::Environment => {
            environment::builder(&|name| env::var(name).ok().as_deref().and_then(is_said))
        }
        Described::Text(text) => {
            let config = Config::parse(text, "configuration");
            let config =
                config.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
            let builder = Builder::from_config(&config)?.control(true);
            builder.check()?;
            Ok(builder)
        }
        Described::Link {
            link,
            addresses,
            gateways,
        } => environment::builder(&|name| match name {
            environment::LOOPBACK if *link == "lo" => Some("true".to_owned()),
            environment::LINK if *link != "lo" => is_said(link),
            environment::ADDRESS => is_said(addresses),
            environment::GATEWAY => is_said(gateways),
            _ => None,
        }),
    }
}

/// The handle names nothing any more. The stack ends with its last socket.
pub fn end(handle: usize) -> io::Result<()> {
    STACKS.remove(handle).map(drop)
}

/// Waits until the peers have what was sent to them, `ms` at most. ETIMEDOUT.
pub fn drain(handle: usize, ms: i32) -> io::Result<()> {
    let stack = named(handle)?;
    let ms = u64::try_from(ms).map_err(|_| error(libc::EINVAL))?;
    match stack.net.drain(Duration::from_millis(ms)) {
        true => Ok(()),
        false => fail(libc::ETIMEDOUT),
    }
}

thread_local! {
    /// What this thread could not open, and why.
    static ERROR: RefCell<CString> = RefCell::default();
}

fn keep_error(text: &str) {
    let text = text.replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    let _ = ERROR.try_with(|place| place.replace(text)); // the thread ends
}

/// Why this thread's last try to open a stack failed; a string as long as it makes no other.
pub fn last_error() -> *const c_char {
    let kept = ERROR.try_with(|place| place.borrow().as_ptr());
    kept.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(described: &Described<'_>) -> String {
        assert!(open(described).is_err());
        ERROR.with(|kept| kept.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn what_is_wrong_is_said() {
        let text = why(&Described::Text("[[link]]\nkind = \"loop\"\ncolour = 1\n"));
        assert!(
            text.contains("configuration:3") && text.contains("colour"),
            "{text}"
        );
        let text = why(&Described::Link {
            link: "loop",
            addresses: "10.0.0.300/24",
            gateways: "",
        });
        assert!(text.contains("10.0.0.300"), "{text}");
    }

    #[test]
    fn a_stack_has_a_handle_until_it_is_ended() {
        let described = Described::Link {
            link: "lo",
            addresses: "",
            gateways: "",
        };
        let handle = open(&described).unwrap();
        assert!(named(handle).unwrap().net.is_local([127, 0, 0, 1].into()));
        assert!(drain(handle, 100).is_ok() && drain(handle, -1).is_err());
        assert!(end(handle).is_ok() && end(handle).is_err() && named(handle).is_err());
    }
}
