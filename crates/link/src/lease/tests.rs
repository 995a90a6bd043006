//! The far side of a lease against a lender that does what a test says, also what a lender should not do.

mod asking;
mod hostile_peers;
mod lender;
mod passing;
mod peers;
