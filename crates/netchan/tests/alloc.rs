//! Invariant 2: after start-up the packet path allocates nothing. A counting allocator says so.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::RefCell,
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use netchan::{
    Clock, Dispatch, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, SendInfo, Socket, SocketOption, UdpOption},
    steps::Steps,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The stacks, and what turns them.
struct Nets {
    nets: Vec<Net>,
    clock: Clock,
    /// With backlogs: their roles, and which shard is held next.
    steps: RefCell<(Vec<Steps>, usize)>,
}

impl Nets {
    fn turn(&self) {
        self.clock.advance(Duration::from_micros(5));
        let (steps, held) = &mut *self.steps.borrow_mut();
        for steps in steps.iter_mut() {
            *held = (*held + 1) % steps.backlogs();
            steps.step_while_held(0, *held);
            steps.step(0);
        }
        if steps.is_empty() {
            self.nets.iter().for_each(|net| _ = net.poll());
        }
    }

    fn count(&self, name: &str) -> u64 {
        let rows = self.nets.iter().filter_map(|net| net.show("counters"));
        let of = |rows: serde_json::Value| {
            let mut rows = rows.as_array().into_iter().flatten();
            rows.find(|row| row["name"] == name)?["value"].as_u64()
        };
        rows.filter_map(of).sum()
    }
}

struct Pair {
    nets: Nets,
    target: SocketAddr,
    client: Socket,
    server: Socket,
    udp: [Socket; 2],
}

/// A client and a server on one wire; or, `routed`, with a router between their two.
fn pair(regime: Regime, dispatch: Dispatch, routed: bool) -> Pair {
    let (a, b) = wire::pair(&wire::Options::default());
    let clock = Clock::new_virtual();
    let start = |builder: netchan::Builder| {
        let builder = builder.regime(regime).dispatch(dispatch);
        let builder = builder.threads(if dispatch == Dispatch::Direct {
            Threads::Caller
        } else {
            Threads::Stepped
        });
        builder.clock(clock.clone()).seed(1).start().unwrap()
    };
    let with = |builder: netchan::Builder, link, address: &str| {
        let builder = builder.link_with(Box::new(link));
        builder.address(address).unwrap()
    };
    let client = with(Net::builder(), a, "10.0.0.1/24");
    let client = client.gateway("10.0.0.254").unwrap();
    let (nets, target) = if routed {
        let (c, d) = wire::pair(&wire::Options::default());
        let server = with(Net::builder(), d, "10.0.1.2/24");
        let server = server.gateway("10.0.1.254").unwrap();
        let router = with(Net::builder().forwarding(true), b, "10.0.0.254/24");
        let router = with(router, c, "10.0.1.254/24");
        (
            vec![start(client), start(server), start(router)],
            [10, 0, 1, 2],
        )
    } else {
        let server = with(Net::builder(), b, "10.0.0.2/24");
        (vec![start(client), start(server)], [10, 0, 0, 2])
    };
    let steps = nets.iter().filter_map(Steps::new).collect();
    let pair = Nets {
        nets,
        clock,
        steps: RefCell::new((steps, 0)),
    };
    let nets = &pair.nets;
    let target = SocketAddr::from((target, 80));
    let listener = Socket::new(&nets[1], Domain::V4, Kind::Stream).unwrap();
    listener.bind(target).unwrap();
    listener.listen(8).unwrap();
    let client = Socket::new(&nets[0], Domain::V4, Kind::Stream).unwrap();
    client.set_option(SocketOption::NoDelay(true)).unwrap();
    let _ = client.connect(target);
    let mut server = None;
    while server.is_none() {
        pair.turn();
        server = listener.accept().ok();
    }
    let udp = [0, 1].map(|i| {
        let socket = Socket::new(&nets[i], Domain::V4, Kind::Datagram).unwrap();
        socket.bind(SocketAddr::from(([0; 4], 53))).unwrap();
        socket
    });
    Pair {
        nets: pair,
        target,
        client,
        server: server.unwrap().0,
        udp,
    }
}

impl Pair {
    /// Sends `data` from one socket to the other, `rounds` times.
    fn carry(
        &self,
        from: &Socket,
        to: &Socket,
        data: &[u8],
        rounds: usize,
        address: Option<SocketAddr>,
    ) {
        let mut buffer = [0; 16384];
        for _ in 0..rounds {
            let mut sent = 0;
            let mut got = 0;
            while got < data.len() {
                if sent < data.len() {
                    match from.send(&[IoSlice::new(&data[sent..])], address) {
                        Ok(n) => sent += n,
                        Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                    }
                }
                match to.receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default()) {
                    Ok(received) => got += received.len,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::WouldBlock);
                        self.nets.turn();
                    }
                }
            }
        }
    }

    fn work(&self) {
        let data = [7; 9000];
        self.carry(&self.client, &self.server, &data[..1], 200, None);
        self.carry(&self.server, &self.client, &data, 400, None);
        self.carry(
            &self.udp[0],
            &self.udp[1],
            &data[..1000],
            50,
            Some(SocketAddr::new(self.target.ip(), 53)),
        );
        self.work_in_segments(&data[..9000]);
    }

    /// Several datagrams a send, several sends a datagram, and as many as there are a receive.
    fn work_in_segments(&self, data: &[u8]) {
        let to = Some(SocketAddr::new(self.target.ip(), 53));
        let merge = SocketOption::Udp(UdpOption::Merge(true));
        self.udp[1].set_option(merge).unwrap();
        let more = SendInfo {
            more: true,
            ..SendInfo::default()
        };
        let mut buffer = [0; 16384];
        for info in [SendInfo::segmented(1000), more]
            .into_iter()
            .cycle()
            .take(40)
        {
            let data = IoSlice::new(data.get(..if info.more { 500 } else { 9000 }).unwrap());
            let mut left = self.udp[0].send_message(&[data], to, &info).unwrap();
            if info.more {
                left += self.udp[0].send(&[data], None).unwrap();
            }
            while left > 0 {
                self.nets.turn();
                let received = self.udp[1]
                    .receive(&mut [IoSliceMut::new(&mut buffer)], ReceiveFlags::default());
                left -= received.map_or(0, |received| received.len);
            }
        }
    }
}

/// One test, alone in its process: other tests would be counted too.
#[test]
fn the_packet_path_allocates_nothing() {
    if netchan::checks::WITNESS {
        return; // it remembers where each lock was taken
    }
    let modes = Regime::here().flat_map(|r| [(r, false), (r, true)]);
    let modes = modes.map(|(regime, routed)| (regime, Dispatch::Direct, routed));
    for (regime, dispatch, routed) in modes.chain([(Regime::Locked, Dispatch::Hybrid, false)]) {
        let pair = pair(regime, dispatch, routed);
        // Start-up includes the first use of what grows to its working size once: the wheel's nodes, send buffers.
        pair.work();
        let before = ALLOCATIONS.load(Relaxed);
        pair.work();
        // Half a minute of silence: timers, neighbour probes.
        for _ in 0..300 {
            pair.nets.clock.advance(Duration::from_millis(100));
            pair.nets.turn();
        }
        pair.work();
        assert_eq!(
            ALLOCATIONS.load(Relaxed) - before,
            0,
            "allocations in regime {regime}, {dispatch:?}, routed: {routed}"
        );
        let left = pair.nets.count("backlog_packets");
        assert_eq!(left > 0, dispatch == Dispatch::Hybrid, "{left}");
    }
}
