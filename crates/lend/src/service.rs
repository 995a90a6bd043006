//! The running thread, as the rest of a program has it: it is told things, and may stand still for a while.

use std::{
    io,
    sync::{Arc, mpsc::Sender},
    thread,
};

use netchan::{Net, own::Own};

use super::{
    answer::{Door, End, Limits, Order, Server},
    request::Lender,
    rules::Rules,
    stack::Stack,
};

/// The running thread.
pub struct Service {
    orders: Sender<Order>,
    wake: Arc<Own>,
    thread: thread::JoinHandle<Option<Box<Server<Stack>>>>,
}

impl Service {
    /// Starts it; clients come by `door`, or by [`admit`](Self::admit) alone. `ended` is dropped at its end, whatever the reason.
    ///
    /// # Errors
    /// The system's.
    pub fn start(
        door: Option<Door>,
        net: &Net,
        rules: Rules,
        ended: impl Send + 'static,
    ) -> io::Result<Self> {
        let stack = Stack(net.clone());
        let (orders, wake, server) = Server::new(door, stack, rules, Limits::default())?;
        Self::run(orders, wake, Box::new(server), ended)
    }

    fn run(
        orders: Sender<Order>,
        wake: Arc<Own>,
        server: Box<Server<Stack>>,
        ended: impl Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            orders,
            wake,
            thread: begin(server, ended)?,
        })
    }

    /// Other rules, for what is asked for from now on.
    pub fn set(&self, rules: Rules) {
        self.send(Order::Rules(rules));
    }

    /// One more client: a connected `SOCK_SEQPACKET` socket. The user and the process that connected are the client's.
    pub fn admit(&self, client: Own) {
        self.send(Order::Admit(client));
    }

    /// It ends once it has no client, those included that were admitted before.
    pub fn end_with_clients(&self) {
        self.send(Order::EndWithClients);
    }

    /// Ends it: it closes its connections, and with them their leases. False if it had failed.
    pub fn stop(self) -> bool {
        self.send(Order::Stop);
        self.thread.join().is_ok()
    }

    /// Ends the thread, which leaves all as it is. `None`: it had ended.
    #[must_use]
    pub fn pause(self) -> Option<Paused> {
        self.send(Order::Pause);
        let Self {
            orders,
            wake,
            thread,
        } = self;
        let server = thread.join().ok().flatten()?;
        Some(Paused {
            orders,
            wake,
            server,
        })
    }

    fn send(&self, order: Order) {
        give(&self.orders, &self.wake, order);
    }
}

fn give(orders: &Sender<Order>, wake: &Own, order: Order) {
    // Where it has ended there is no thread to tell.
    let _ = orders.send(order);
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// Starts the thread, whose end gives the server back if it is to go on.
pub(super) fn begin<L: Lender>(
    mut server: Box<Server<L>>,
    ended: impl Send + 'static,
) -> io::Result<thread::JoinHandle<Option<Box<Server<L>>>>> {
    netchan::spawn("netchan-lease", move || {
        let _ended = ended;
        (server.run() == End::Pause).then_some(server)
    })
}

/// A [`Service`] without its thread. Dropping it ends the leases.
pub struct Paused {
    orders: Sender<Order>,
    wake: Arc<Own>,
    server: Box<Server<Stack>>,
}

impl Paused {
    /// Whether it has clients.
    #[must_use]
    pub fn has_clients(&self) -> bool {
        !self.server.connections.is_empty()
    }

    /// As [`Service::admit`]: it is served later.
    pub fn admit(&self, client: Own) {
        give(&self.orders, &self.wake, Order::Admit(client));
    }

    /// Goes on, in this process or in one that was forked from it.
    ///
    /// # Errors
    /// There is no thread; the leases have ended.
    pub fn resume(self, ended: impl Send + 'static) -> io::Result<Service> {
        Service::run(self.orders, self.wake, self.server, ended)
    }
}
