//! What an experiment is.

use std::fmt;

use crate::{
    kit::Pinned,
    machine::{Machine, Watch},
    report::{ChecksOn, Report, Row},
};

/// How to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewer rounds: ends within half a minute on two cores.
    pub quick: bool,
}

impl Options {
    /// The one of two amounts of work that they ask for.
    pub(crate) const fn choose<T: Copy>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }
}

/// One question with its way to an answer.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// What is asked.
    pub question: &'static str,
    /// What was expected before the first run.
    pub prediction: &'static str,
    /// Asks the machine.
    pub(crate) run: fn(&Experiment, &Options) -> Result<Report, LabError>,
}

impl Experiment {
    /// The report of what `rows` find, on the core that `pin` stays on.
    pub(crate) fn on_one_core(
        &self,
        pin: impl FnOnce() -> Pinned,
        rows: impl FnOnce() -> Result<Vec<Row>, LabError>,
    ) -> Result<Report, LabError> {
        let watch = Watch::start();
        let pinned = pin();
        let rows = rows()?;
        Ok(self.report(watch.machine(pinned.is_pinned()), rows))
    }

    /// The report of what was found on `machine`.
    pub(crate) fn report(&self, machine: Machine, rows: Vec<Row>) -> Report {
        Report {
            name: self.name,
            question: self.question,
            machine,
            checks_on: ChecksOn::here(),
            prediction: self.prediction,
            rows,
        }
    }
}

/// Why an experiment gave no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabError {
    /// No experiment has this name.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        names: String,
    },
    /// Began and could not go on: what failed, in words.
    Failed(String),
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, names } => {
                write!(f, "no experiment is called {name:?}; there are: {names}")
            }
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for LabError {}

impl From<std::io::Error> for LabError {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}
