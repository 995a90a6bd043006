//! Lends a stack's links to other processes: the thread that answers what they ask for ([`Service`]), and the rules by which it does.
//!
//! `netchan daemon` lends to the programs of a machine, `netchan run --shared` to those of a run, and a program on a link of its own to the children that it
//! forks.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `service` | the thread, as the rest of a program has it: it begins, is told things, stands still, ends |
//! | `answer` | what the thread does |
//! | `request` | one request and its answer |
//! | `stack` | the stack, as the thread sees it |
//! | `peer` | the process that asks |
//! | `rules` | which user and program may have which port |
//! | `holders` | which lease has which port |
//! | `pairs` | short cuts between leases |
//! | `refusals` | how often refusals are told of |

mod answer;
mod holders;
mod pairs;
mod peer;
mod refusals;
mod request;
mod rules;
mod service;
mod stack;

pub use rules::{Group, Rule, Rules};
pub use service::{Paused, Service};
