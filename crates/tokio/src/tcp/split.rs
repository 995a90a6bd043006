//! The halves of a stream, for one task or for two.

use std::{
    error::Error,
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Shared, TcpStream};

/// The reading half of a [`TcpStream`], for the task that has the other one, too.
pub struct ReadHalf<'a>(pub(super) &'a Shared);

/// The writing half of a [`TcpStream`], for the task that has the other one, too.
pub struct WriteHalf<'a>(pub(super) &'a Shared);

/// The reading half of a [`TcpStream`].
pub struct OwnedReadHalf(pub(super) Arc<Shared>);

/// The writing half of a [`TcpStream`]; dropped, it ends what we send.
pub struct OwnedWriteHalf {
    shared: Arc<Shared>,
    shuts: bool,
}

/// Two halves that are not of one stream; here they are again.
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are of two streams")
    }
}

impl Error for ReuniteError {}

macro_rules! named {
    ($($type:ty),+) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($type))
            }
        }
    )+};
}

named!(
    ReadHalf<'_>,
    WriteHalf<'_>,
    OwnedReadHalf,
    OwnedWriteHalf,
    ReuniteError
);

impl OwnedReadHalf {
    /// The stream again, of which this and `other` are the halves.
    ///
    /// # Errors
    /// They are of two streams.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &other.shared) {
            return Err(ReuniteError(self, other));
        }
        drop(self);
        let Some(shared) = Arc::into_inner(other.forget_it()) else {
            unreachable!("a stream has two halves, and both are here");
        };
        Ok(TcpStream { shared })
    }
}

impl OwnedWriteHalf {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            shuts: true,
        }
    }

    /// The stream again, of which this and `other` are the halves.
    ///
    /// # Errors
    /// They are of two streams.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops it without ending what we send: the other half's end closes the connection.
    pub fn forget(self) {
        drop(self.forget_it());
    }

    fn forget_it(mut self) -> Arc<Shared> {
        self.shuts = false;
        self.shared.clone()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts {
            // An error means that there is no connection left to shut down.
            let _ = self.shared.shutdown_write();
        }
    }
}

macro_rules! reads {
    ($type:ty, $shared:tt) => {
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.$shared.poll_read(cx, buf)
            }
        }
    };
}

macro_rules! writes {
    ($type:ty, $shared:tt) => {
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.$shared.poll_write(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.$shared.poll_write(cx, buffers)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.$shared.shutdown_write())
            }
        }
    };
}

reads!(TcpStream, shared);
reads!(ReadHalf<'_>, 0);
reads!(OwnedReadHalf, 0);
writes!(TcpStream, shared);
writes!(WriteHalf<'_>, 0);
writes!(OwnedWriteHalf, shared);
