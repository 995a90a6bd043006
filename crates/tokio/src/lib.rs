//! Async netchan sockets: `AsyncRead`, `AsyncWrite` and an acceptor, as tokio, hyper, axum and rustls take them.
//!
//! ```no_run
//! use netchan_tokio::TcpListener;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn serve() -> std::io::Result<()> {
//! let net = netchan::Net::builder().link("tap:nc0")?.address("10.77.0.2/24")?.start()?;
//! let listener = TcpListener::bind(&net, "0.0.0.0:80")?;
//! loop {
//!     let (mut stream, peer) = listener.accept().await?;
//!     stream.write_all(format!("hello {peer}\n").as_bytes()).await?;
//! }
//! # }
//! ```
//!
//! Feature `axum`: `axum::serve` takes a [`TcpListener`].
//!
//! Nothing here depends on tokio's reactor: the stack wakes the task. Any executor will do; only the traits are tokio's.
//! The stack must turn by itself, that is, run with [`netchan::Threads::Own`]; its background poller serves the tasks (`Net::poll_in_background`).

mod addresses;
mod direction;
mod tcp;
mod udp;

pub use tcp::{
    OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, TcpListener, TcpSocket, TcpStream,
    WriteHalf,
};
pub use udp::UdpSocket;
