//! Async netchan sockets for tokio.
