//! Lends a stack's links to other processes: the thread that answers what they ask for ([`Service`]), and the rules by which it does.
//!
//! `netchan daemon` lends to the programs of a machine, `netchan run --shared` to those of a run, and a program on a link of its own to the children that it
//! forks.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `answer` | the thread |
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
mod stack;

pub use answer::{Paused, Service};
pub use rules::{Group, Rule, Rules};
