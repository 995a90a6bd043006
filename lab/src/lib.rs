//! The evidence: experiments with their predictions, peers side by side in one run, the machine they ran on.
//!
//! An experiment is a folder under `lab/experiments` (question, prediction, method, machine, data, verdict) and one entry
//! of [`list`], which `netchan lab run NAME` executes.

mod aggregation;
mod applications;
mod contention;
mod daemon;
pub mod differential;
mod dispatch;
mod experiment;
mod experiments;
mod giant_cost;
pub mod instructions;
pub mod kit;
pub mod machine;
mod namespace;
pub mod path;
mod pipeline;
mod primitives;
mod regimes;
pub mod relay;
pub mod report;
mod rig;
mod server_counter;
mod services;
mod steer;
mod system_calls;
mod taps;
pub mod tcp;
mod usage;
pub mod world;

pub use applications::program::application;
pub use experiment::{Experiment, LabError, Options};
pub use experiments::{find, list, run};
pub use report::{Report, Row};
pub use rig::child::child;
