//! The same exchange under every regime: what differs is which thread runs the protocol. Needs no rights. For figures: `netchan lab run regimes`.

use std::{
    io::{self, Read, Write},
    thread,
};

use netchan::{Net, Regime, link::wire};

const ROUNDS: usize = 200;

fn exchange(regime: Regime) -> io::Result<()> {
    let (left, right) = wire::pair(&wire::Options::default());
    let start = |link, address| -> io::Result<Net> {
        let net = Net::builder().link_with(Box::new(link));
        net.address(address)?.regime(regime).start()
    };
    let (server, client) = (start(left, "10.0.0.1/24")?, start(right, "10.0.0.2/24")?);
    let listener = server.tcp().listen("0.0.0.0:7")?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut bytes = [0; 64];
        for _ in 0..ROUNDS {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let mut stream = client.tcp().connect("10.0.0.1:7")?;
    for round in 0..ROUNDS {
        let sent = [u8::try_from(round % 256).unwrap_or(0); 64];
        let mut back = [0; 64];
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        assert_eq!(sent, back);
    }
    echo.join().expect("the server does not panic")?;
    let threads = server.show("threads").unwrap_or_default();
    let names = threads.as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = names
        .iter()
        .filter_map(|thread| thread["name"].as_str())
        .collect();
    println!(
        "{:<15} {ROUNDS} rounds; threads: {}",
        regime.name(),
        names.join(", ")
    );
    Ok(())
}

fn main() -> io::Result<()> {
    Regime::here().try_for_each(exchange)
}
