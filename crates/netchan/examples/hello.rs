//! A web server of a few lines on a TAP device: `curl http://10.77.0.2/` from the host.
//!
//! Needs CAP_NET_ADMIN, or a user and network namespace: `unshare -Urn cargo run --example hello`.

use std::io::{Read, Write};

use netchan::{Net, Regime};

fn main() -> std::io::Result<()> {
    let net = Net::builder()
        .link("tap:nc0,peer=10.77.0.1/24")? // the kernel's end gets 10.77.0.1
        .address("10.77.0.2/24")?
        .regime(Regime::AppChannel)
        .start()?;

    let listener = net.tcp().listen("0.0.0.0:80")?;
    for stream in listener.incoming() {
        let mut stream = stream?; // Read + Write, timeouts, shutdown, peer_addr: as in std::net
        let mut request = [0; 1024];
        let n = stream.read(&mut request)?;
        println!("{n} bytes from {}", stream.peer_addr()?);
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")?;
    }
    Ok(())
}
