//! Invariant 2 with threads: after start-up neither links' threads nor shards' nor applications' allocate. Alone in its process.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Read, Write},
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use netchan::{Dispatch, Net, Regime, TcpStream, UdpSocket, link::wire};

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

/// One byte and back, a hundred times; 1 MB and its end; datagrams there and back.
fn work(stream: &mut TcpStream, udp: &UdpSocket, target: SocketAddr, buffer: &mut [u8]) {
    for _ in 0..100 {
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut buffer[..1]).unwrap();
        udp.send_to(&[1], target).unwrap();
        udp.recv_from(buffer).unwrap();
    }
    for _ in 0..20 {
        stream.write_all(buffer).unwrap();
        stream.read_exact(buffer).unwrap();
    }
}

#[test]
fn no_thread_allocates_once_it_has_begun() {
    if netchan::checks::WITNESS {
        return; // it remembers where each lock was taken
    }
    let goes = |&(regime, dispatch): &(Regime, Dispatch)| {
        let layout = regime.layout(None);
        layout.is_some_and(|layout| layout.dispatched(dispatch).is_ok())
    };
    let all = Regime::here().flat_map(|r| Dispatch::ALL.map(|dispatch| (r, dispatch)));
    for (regime, dispatch) in all.filter(goes) {
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let start = |link, address: &str| {
            let net = Net::builder().link_with(link).address(address).unwrap();
            net.regime(regime).dispatch(dispatch).start().unwrap()
        };
        let client = start(Box::new(ours), "10.0.0.1/24");
        let server = start(Box::new(theirs), "10.0.0.2/24");
        let target = SocketAddr::from(([10, 0, 0, 2], 80));
        let listener = server.tcp().listen("0.0.0.0:80").unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 16384];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..n]).unwrap();
            }
        });
        let answering = server.udp().bind("0.0.0.0:80").unwrap();
        let answer = thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((n @ 1.., from)) = answering.recv_from(&mut buffer) {
                answering.send_to(&buffer[..n], from).unwrap();
            }
        });
        let mut stream = client.tcp().connect(target).unwrap();
        let udp = client.udp().bind("0.0.0.0:0").unwrap();
        let mut buffer = vec![7; 16384];
        // What grows to its working size once may do so late, in a round that is busier than those before; a packet path that
        // allocates does so in every round.
        let mut counts = Vec::new();
        while counts.len() < 20 && counts.last() != Some(&0) {
            let before = ALLOCATIONS.load(Relaxed);
            work(&mut stream, &udp, target, &mut buffer);
            counts.push(ALLOCATIONS.load(Relaxed) - before);
            counts.reserve(32);
        }
        assert_eq!(counts.last(), Some(&0), "{regime} {dispatch:?}: {counts:?}");
        udp.send_to(&[], target).unwrap();
        answer.join().unwrap();
        drop(stream);
        echo.join().unwrap();
    }
}
