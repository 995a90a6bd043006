//! A test in virtual time: two stacks and a wire with a tenth of a second of delay, turned by hand. The same seed gives the same run, and
//! seconds of the stacks' time take milliseconds of ours. Needs no rights.

use std::{
    io::{self, IoSlice, IoSliceMut},
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};

/// A stack without threads whose time stands still until the program turns it.
fn stack(clock: &Clock, link: wire::Wire, address: &str) -> io::Result<Net> {
    Net::builder()
        .link_with(Box::new(link))
        .address(address)?
        .threads(Threads::Caller)
        .clock(clock.clone())
        .seed(1)
        .start()
}

/// Turns both stacks, and the clock to what is due next, until `call` answers something else than "not yet".
fn until<R>(nets: [&Net; 2], mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        while nets[0].poll() | nets[1].poll() {}
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answer => return answer,
        }
        let next = nets.iter().filter_map(|net| net.next_event()).min();
        let next = next.ok_or(io::ErrorKind::WouldBlock)?; // nothing will ever happen
        nets[0].clock().advance_to(next);
    }
}

fn main() -> io::Result<()> {
    let clock = Clock::new_virtual();
    let options = wire::Options {
        delay: Duration::from_millis(100),
        ..wire::Options::default()
    };
    let (left, right) = wire::pair(&options);
    let (server, client) = (
        stack(&clock, left, "10.0.0.1/24")?,
        stack(&clock, right, "10.0.0.2/24")?,
    );
    let nets = [&server, &client];
    let begin = clock.now();

    let listener = Socket::new(&server, Domain::V4, Kind::Stream)?;
    listener.bind(([10, 0, 0, 1], 80).into())?;
    listener.listen(1)?;
    let socket = Socket::new(&client, Domain::V4, Kind::Stream)?;
    let _ = socket.connect(([10, 0, 0, 1], 80).into()); // under way
    let (accepted, _) = until(nets, || listener.accept())?;
    until(nets, || socket.send(&[IoSlice::new(b"hello")], None))?;
    let mut bytes = [0; 5];
    let flags = ReceiveFlags::default();
    until(nets, || {
        accepted.receive(&mut [IoSliceMut::new(&mut bytes)], flags)
    })?;

    let took = clock.now().since(begin);
    println!("hello arrived after {took:?} of virtual time");
    assert_eq!(&bytes, b"hello");
    // ARP and its answer, the handshake and the text: at least five ways of 100 ms.
    assert!((Duration::from_millis(500)..Duration::from_secs(2)).contains(&took));
    Ok(())
}
