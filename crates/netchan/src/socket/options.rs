//! Socket options. A row in `table` says what a program calls one and what its bytes mean; an entry in `effects` what it does. `kept` is what a socket
//! keeps; here they are set and read.

mod device;
mod effects;
mod groups;
mod kept;
mod keys;
mod row;
mod setting;
mod table;
mod values;

use std::io;

use self::effects::{Context, OptionValues, Sockets};
pub(in crate::socket) use self::kept::SocketOptions;
pub use self::{
    device::interface_name,
    effects::SocketOption,
    groups::filter::Layout,
    keys::list_keys,
    row::{Decides, Get, Row, Rules, Set, Value},
    setting::{CallerFlag, CallerOption, Device, Keys, NAME, Setting},
    table::{LEVELS, Level, UNSUPPORTED, Unsupported, find, parse, refusal},
    values::int_or_byte,
};
use super::{Role, Socket};
use crate::api::{Domain, Kind};
use crate::{errno::error, shard::TcpSocket};

impl Socket {
    /// Whether this kind of socket has the option.
    fn has(&self, option: SocketOption) -> bool {
        match option.sockets() {
            Sockets::All => true,
            Sockets::V6 => self.domain == Domain::V6,
            Sockets::Streams => self.kind == Kind::Stream,
            Sockets::Datagrams => self.kind == Kind::Datagram,
        }
    }

    /// Whether it has a port: one that bind(2) or listen(2) gave it, or its connection's, as long as that lives.
    fn has_port(&self) -> bool {
        let mut options = self.options.lock();
        if let Some(Role::Stream(stream)) = self.role() {
            if !stream.is_over(self.stack()) {
                return true;
            }
            self.release_ended(stream, &mut options);
        }
        // One that was connected and is no more may have none, though it is a datagram socket still.
        options.binding().is_some() || matches!(self.role(), Some(Role::Listening(_)))
    }

    /// A link that there is, and of a connection the one that it runs over.
    fn check_device(&self, number: u8) -> Result<(), i32> {
        if usize::from(number) >= self.stack().control.host.network().interfaces.len() {
            return Err(libc::ENODEV);
        }
        if let Some(Role::Stream(stream)) = self.role() {
            let leaves = |socket: &TcpSocket| socket.interface() != number && !socket.is_over();
            if stream.hold(self.stack(), |shard, at| shard.tcp(at).is_some_and(leaves)) {
                return Err(libc::EINVAL);
            }
        }
        Ok(())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// ENOPROTOOPT where it has no meaning for this socket; `InvalidInput` for a value out of range, or one that comes too late.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        if let SocketOption::Multicast(option) = option {
            return self.set_multicast(option);
        }
        if !self.has(option) {
            return Err(error(libc::ENOPROTOOPT));
        }
        let option = match (self.kind, option) {
            // The two bits of ECN are TCP's own (RFC 3168 §5).
            (Kind::Stream, SocketOption::TypeOfService(tos)) => {
                SocketOption::TypeOfService(tos & !3)
            }
            (Kind::Stream, SocketOption::TrafficClass(class)) => {
                SocketOption::TrafficClass(class & !3)
            }
            (_, option) => option,
        };
        option.check(self).map_err(error)?;
        // Held to the end: of two calls at a time the later one must not be told to the shard before the other.
        let mut options = self.options.lock();
        if let Some(Role::Listening(listening)) = self.role() {
            options.keep_for(&listening.waiting(self.stack()));
        }
        options.set_key(option)?;
        options.apply(option);
        if let Some((id, _)) = options.binding()
            && let Some(change) = option.port_change(&options)
        {
            self.stack().control.directory.change(id, change);
        }
        let options = &*options;
        match self.role() {
            Some(Role::Stream(stream)) => {
                let context = Context {
                    now: self.stack().clock.now(),
                    tcp: self.stack().control.host.tcp(),
                };
                let change = |socket: &mut TcpSocket| option.change(socket, options, &context);
                stream.with(self.stack(), change);
            }
            Some(Role::Datagram(datagram)) => datagram.set_options(self.stack(), option, options),
            Some(Role::Listening(listening)) => {
                listening.set_options(self.stack(), &options.tcp_options());
            }
            None => {}
        }
        Ok(())
    }

    /// MSG_MORE of a stream: until it is told `false` small segments wait as with TCP_CORK, which stays as it is.
    pub fn set_more(&self, more: bool) {
        let stack = self.stack();
        let options = self.options.lock(); // to the end, as in `set_option`
        let corked = options.corked(&stack.control.host);
        if let Some(Role::Stream(stream)) = self.role() {
            stream.with(stack, |socket| socket.connection.set_cork(more || corked));
        }
    }

    /// The current value of the option that `like` names (its payload is ignored).
    ///
    /// # Errors
    /// ENOPROTOOPT where it has no meaning for this socket.
    pub fn option(&self, like: SocketOption) -> io::Result<SocketOption> {
        let is_secret = matches!(like, SocketOption::Md5Key { .. });
        if is_secret || !self.has(like) {
            return Err(error(libc::ENOPROTOOPT));
        }
        if let Some(Role::Stream(stream)) = self.role()
            && let Some(option) = like.of_connection(stream, self.stack())
        {
            return Ok(option);
        }
        Ok(self.options.lock().read(&self.stack().control.host, like))
    }
}
