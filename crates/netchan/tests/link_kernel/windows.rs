//! Windows closed both ways: a program writes to the kernel's TCP, which echoes, until neither takes more, and only then reads.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    frames::PATIENCE,
    namespace,
    signed::{KERNEL, OURS, net},
};

/// Reads a block, writes it back, and so on.
fn echo(mut stream: TcpStream) {
    let mut block = vec![0; 65536];
    while let Ok(n @ 1..) = stream.read(&mut block) {
        if stream.write_all(&block[..n]).is_err() {
            return;
        }
    }
}

/// Writes until nothing is taken any more and a probe of the peer's closed window is out; how many bytes that was.
fn fill(stream: &mut netchan::TcpStream) -> usize {
    let block = [7; 65536];
    let (mut written, mut refused) = (0, 0);
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.write(&block) {
            Ok(n) => (written, refused) = (written + n, 0),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                let info = stream.socket().tcp_info().expect("a connection");
                if refused >= 10 && info.is_probing && info.in_flight_bytes > 0 {
                    break;
                }
                refused += 1;
                assert!(refused < 500, "no probe: {info:?}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    written
}

/// RFC 9293 §3.8.6.1: a probe lies beyond the peer's closed window; what reports that our own has opened must not. Linux drops it, and since
/// 6.17 the probe as well: the echo would never go on.
#[test]
fn an_echo_goes_on_when_it_is_read() {
    namespace::with_tap("windows::an_echo_goes_on_when_it_is_read", || {
        let net = net();
        for (kernel, ours) in KERNEL.iter().zip(OURS) {
            let listener = TcpListener::bind((*kernel, 0)).unwrap();
            let target = listener.local_addr().unwrap();
            let peer = thread::spawn(move || echo(listener.accept().unwrap().0));
            let mut stream = net.tcp().connect(target).unwrap();
            let written = fill(&mut stream);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut back = vec![0; 65536];
            let mut read = 0;
            while read < written {
                read += stream
                    .read(&mut back)
                    .unwrap_or_else(|e| panic!("{ours}: {read} of {written} came back: {e}"));
            }
            drop(stream);
            peer.join().unwrap();
        }
    });
}
