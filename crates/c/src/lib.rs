//! netchan's sockets for C. What a program sees is in `include/netchan.h`, which says what each function does; `docs/c.md` how to link it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`export`] | the functions of the header: pointers become slices and handles |
//! | `edge` | results become return values and errno, panics EIO |
//! | `table` | handles: numbers in the guise of pointers, so that one that was closed is known |
//! | `stack` | a running stack, and how one is opened |
//! | `socket` | a socket with what its caller keeps: whether it waits and for how long, what it was lent |
//! | `wait`, `poll` | waiting for one socket, or for several and the kernel's descriptors |
//! | `names`, `options`, `transfer`, `lending` | the calls, by subject |
//! | `sys` | system calls, and fork |

mod edge;
pub mod export;
mod lending;
mod names;
mod options;
mod poll;
mod socket;
mod stack;
mod sys;
mod table;
mod transfer;
mod wait;
