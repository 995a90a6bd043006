//! Socket calls of a thread whose thread-local values are gone already: exit handlers, and destructors of other such values, close sockets.

use std::{
    cell::RefCell,
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    thread,
    time::Duration,
};

use netchan::{
    Net, Regime, UdpSocket,
    link::wire,
    socket::{Domain, Kind, Readiness, Socket},
};

#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Ends the second listener, and waits at the other socket, when its thread's values are destroyed.
struct Last(Socket, UdpSocket);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.shutdown(Shutdown::Both).unwrap();
        self.1.recv(&mut [0]).unwrap_err();
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

#[test]
fn a_waiter_is_woken_by_a_thread_in_its_last_moments() {
    for regime in [Regime::Locked, Regime::AppChannel, Regime::SocketChannel] {
        let (ours, _end) = wire::pair(&wire::Options::default());
        let net = Net::builder().regime(regime).link_with(Box::new(ours));
        let net = net.address("10.0.0.1/24").unwrap().start().unwrap();
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(calls.clone());
        let listening = |port| {
            let socket = Socket::new(&net, Domain::V4, Kind::Stream).unwrap();
            socket.bind(([10, 0, 0, 1], port).into()).unwrap();
            socket.listen(8).unwrap();
            assert!(!socket.register(Readiness::READABLE, &waker));
            socket
        };
        let (first, second) = (listening(80), listening(81));
        let datagrams = || {
            let socket = net.udp().bind("10.0.0.1:0").unwrap();
            let patience = Some(Duration::from_millis(1));
            socket.set_read_timeout(patience).unwrap();
            socket
        };
        let (waits, silent) = (datagrams(), datagrams());
        let last = thread::spawn(move || {
            // Destroyed after what was used later: the stack's own, by the call below.
            LAST.set(Some(Last(second, silent)));
            first.shutdown(Shutdown::Both).unwrap();
            waits.recv(&mut [0]).unwrap_err();
        });
        last.join().unwrap();
        assert!(
            calls.0.load(Relaxed) >= 2,
            "{regime:?}: both were waited for"
        );
    }
}
