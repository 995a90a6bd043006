//! An echo server and its client, each on a stack of its own, over a wire in memory. Needs no rights.

use std::{
    io::{self, Read, Write},
    thread,
};

use netchan::{Net, link::wire};

fn main() -> io::Result<()> {
    let (left, right) = wire::pair(&wire::Options::default());
    let server = Net::builder()
        .link_with(Box::new(left))
        .address("10.0.0.1/24")?
        .start()?;
    let client = Net::builder()
        .link_with(Box::new(right))
        .address("10.0.0.2/24")?
        .start()?;

    let listener = server.tcp().listen("0.0.0.0:7")?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let (mut stream, peer) = listener.accept()?;
        println!("a connection from {peer}");
        let mut bytes = [0; 1024];
        loop {
            match stream.read(&mut bytes)? {
                0 => return Ok(()),
                n => stream.write_all(&bytes[..n])?,
            }
        }
    });

    let mut stream = client.tcp().connect("10.0.0.1:7")?;
    stream.write_all(b"is anybody there?")?;
    let mut answer = [0; 17];
    stream.read_exact(&mut answer)?;
    println!("the answer: {}", String::from_utf8_lossy(&answer));
    assert_eq!(&answer, b"is anybody there?");
    drop(stream);
    echo.join().expect("the server does not panic")
}
