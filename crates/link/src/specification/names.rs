//! Names of interfaces as the kernel takes them, and what people write where a name ends and options begin.

use super::Kind;

/// The longest name of an interface, bytes (IFNAMSIZ less the zero behind it).
const NAME_MAX: usize = 15;

/// Whether the kernel would take `name` for an interface (dev_valid_name), and it is not meant as something else: `%` makes it choose a
/// number, `=`, `;` and quotation marks it would take, but they are slips of the hand.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub fn interface(name: &str) -> Result<(), String> {
    if name.len() > NAME_MAX {
        return Err(format!(
            "the name `{name}` is too long: an interface's has at most {NAME_MAX} bytes, this has {}",
            name.len()
        ));
    }
    let bad = |c: char| "/:%;=,\"'".contains(c) || c.is_whitespace() || c.is_control();
    if let Some(c) = name.chars().find(|&c| bad(c)) {
        return Err(format!(
            "no interface can have the name `{name}`, because of its {c:?}; options stand behind commas, as in `tap:nc0,mtu=9000`"
        ));
    }
    if matches!(name, "." | "..") {
        return Err(format!("no interface can have the name `{name}`"));
    }
    Ok(())
}

/// Whether an option begins in `head`, which reaches to the first comma: what was meant then, if it can be told.
pub fn misplaced_option(head: &str) -> Option<String> {
    let is_file = head.starts_with(Kind::Pcap.name()); // whose name may have nearly everything in it
    let separators = if is_file { ";" } else { ";:&|+ \t" };
    let is_separator = |c: char| separators.contains(c);
    let (before, value) = head.split_once('=')?;
    let (front, key) = before.trim_end().rsplit_once(is_separator)?;
    let front = front.trim_end_matches(is_separator);
    let mut known = Kind::COMMON
        .iter()
        .chain(Kind::ALL.iter().flat_map(|kind| kind.options()));
    known
        .any(|&option| option == key)
        .then(|| format!("{front},{key}={value}"))
}
