//! Filters: programs of the classic BSD packet filter, checked once and then run without a bound being left to trust.
//!
//! Source: McCanne and Jacobson, "The BSD Packet Filter" (1993), and bpf(4). What tcpdump's language says is compiled to such a program by libpcap,
//! outside the stack. A program comes from another process: [`Filter::new`] refuses what could leave its code, its scratch memory or its time.
//! Jumps lead forwards only, so a program ends after as many steps as it has instructions.
//!
//! A filter is interpreted until [`Filter::compiled`] has made machine code of it, as a tap does with its own: translated to eBPF with a check before
//! each load (`translation`), the checks found again by a pass that knows nothing of the translation (`proof`), and assembled by rbpf (`machine`).

#[cfg(target_arch = "x86_64")]
mod context;
mod interpreter;
#[cfg(target_arch = "x86_64")]
mod machine;
mod program;
#[cfg(target_arch = "x86_64")]
mod proof;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod translation;

/// rbpf's assembler writes for x86-64.
#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::program::Step;

    pub enum Code {}

    impl Code {
        pub fn of(_: &[Step]) -> Option<Self> {
            None
        }

        pub fn run(&self, _: &[u8], _: u32) -> Option<u32> {
            match *self {}
        }
    }
}

use std::sync::Arc;

pub use self::program::{BadProgram, INSTRUCTIONS_MAX, Instruction};
use self::{
    machine::Code,
    program::{Step, check},
};

/// A checked program. The default one lets every packet through.
#[derive(Clone, Default)]
pub struct Filter {
    /// Empty: everything passes.
    steps: Box<[Step]>,
    /// The same as machine code.
    code: Option<Arc<Code>>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.engine(), self.steps)
    }
}

/// Programs that are the same, however they are run.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.steps == other.steps
    }
}

impl Eq for Filter {}

impl Filter {
    /// Checks a program.
    ///
    /// # Errors
    /// The first instruction that is wrong.
    pub fn new(program: &[Instruction]) -> Result<Self, BadProgram> {
        let steps = check(program)?;
        Ok(Self { steps, code: None })
    }

    /// The same as machine code. It stays interpreted where that cannot be: another processor than x86-64, or a process that is refused executable
    /// memory (PR_SET_MDWE, systemd's MemoryDenyWriteExecute, SELinux).
    #[must_use]
    pub fn compiled(self) -> Self {
        let Self { steps, code } = self;
        let made = || match &steps[..] {
            [] => None,
            steps => Code::of(steps).map(Arc::new),
        };
        let code = code.or_else(made);
        Self { steps, code }
    }

    /// How it is run: `compiled`, `interpreted`, or `none` where everything passes.
    pub fn engine(&self) -> &'static str {
        match (&self.code, self.is_empty()) {
            (Some(_), _) => "compiled",
            (None, false) => "interpreted",
            (None, true) => "none",
        }
    }

    /// How many instructions it has; 0: everything passes.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many bytes of `packet`, which is `length` bytes long on the link, are wanted; 0: it does not pass. A load beyond its bytes ends the program with 0.
    #[inline]
    pub fn run(&self, packet: &[u8], length: u32) -> u32 {
        if self.steps.is_empty() {
            return u32::MAX;
        }
        let said = self.code.as_ref().and_then(|code| code.run(packet, length));
        said.unwrap_or_else(|| interpreter::run(&self.steps, packet, length).unwrap_or(0))
    }
}
