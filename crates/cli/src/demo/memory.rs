//! The demo's steps where no link to the kernel can be had: two netchans in this process, joined by a wire in memory.

use std::{io, io::Read, net::SocketAddr, thread, time::Duration};

use netchan::{Net, TcpStream, environment, link::wire};
use sha2::{Digest, Sha256};

use super::{
    Row, SEED, Teller, Transfer, link, regimes, size,
    traffic::{self, Direction, Noise, hex},
    transfer_of,
};
use crate::{
    failure::{Failure, at},
    units::now_ns,
};

const SERVER: &str = "10.77.0.2";
const CLIENT: &str = "10.77.0.3";
const PORT: u16 = 7000;
const PROGRAMS: (&str, &str) = (
    "a thread with netchan's sockets",
    "a thread with netchan's sockets",
);
const SILENCE: Duration = Duration::from_secs(15);

/// All steps.
pub fn steps(teller: &Teller) -> Result<(Vec<Transfer>, Vec<Row>), Failure> {
    let pair = Pair::start("app-channel").map_err(at("starting two stacks"))?;
    teller.say(&format!(
        "\n{} each way, between two programs' threads with netchan's own sockets",
        size(teller.bytes)
    ))?;
    let transfers = vec![pair.upward(teller)?, pair.downward(teller)?];
    // The stacks run on, idle, to the end of the program: taking one away would be an event for the other.
    std::mem::forget(pair);
    teller.say("\nThe same small server and client for each regime, and for Linux's loopback")?;
    let mut rows = Vec::new();
    for regime in regimes() {
        let spinner = teller.spinner(&format!("measuring {regime}"));
        let row = Pair::start(regime).and_then(|pair| {
            let row = pair.measure(teller, regime);
            std::mem::forget(pair);
            row
        });
        spinner.finish_and_clear();
        rows.push(row.map_err(at(regime))?);
    }
    rows.push(link::loopback(teller)?);
    Ok((transfers, rows))
}

/// Two stacks and the wire between them; a server runs on the first.
struct Pair {
    _server: Net,
    client: Net,
    address: SocketAddr,
}

impl Pair {
    fn start(regime: &str) -> io::Result<Self> {
        let regime = environment::regime(regime)?;
        let (one, other) = wire::pair(&wire::Options::default());
        let server = Net::builder()
            .link_with(Box::new(one))
            .address(&format!("{SERVER}/24"))?
            .regime(regime)
            .start()?;
        let client = Net::builder()
            .link_with(Box::new(other))
            .address(&format!("{CLIENT}/24"))?
            .regime(regime)
            .start()?;
        let listener = server.tcp().listen(format!("{SERVER}:{PORT}"))?;
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let _ = stream.set_nodelay(true);
                thread::spawn(move || traffic::serve(stream, None));
            }
        });
        let address = SocketAddr::from(([10, 77, 0, 2], PORT));
        Ok(Self {
            _server: server,
            client,
            address,
        })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = self.client.tcp().connect_timeout(self.address, SILENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(stream)
    }

    /// Noise from the client, hashed by the server.
    fn upward(&self, teller: &Teller) -> Result<Transfer, Failure> {
        let bytes = teller.bytes;
        let sent = digest(bytes);
        let bar = teller.bar("into the server", bytes);
        let started = now_ns();
        let arrived = self.connect().and_then(|stream| {
            traffic::upload(stream, &mut Noise::new(SEED).take(bytes), bytes, &mut |n| {
                bar.inc(n)
            })
        });
        let taken = now_ns() - started;
        bar.finish_and_clear();
        let arrived = arrived.map_err(at("into the server"))?;
        let transfer = transfer_of("into the server", PROGRAMS, bytes, taken, (&sent, &arrived));
        teller.transfer(&transfer)?;
        Ok(transfer)
    }

    /// Noise from the server, hashed here.
    fn downward(&self, teller: &Teller) -> Result<Transfer, Failure> {
        let bytes = teller.bytes;
        let sent = digest(bytes);
        let bar = teller.bar("out of the server", bytes);
        let started = now_ns();
        let arrived = self
            .connect()
            .and_then(|stream| traffic::listen(stream, bytes, &mut |n| bar.inc(n)));
        let taken = now_ns() - started;
        bar.finish_and_clear();
        let arrived = arrived.map_err(at("out of the server"))?;
        let transfer = transfer_of(
            "out of the server",
            PROGRAMS,
            bytes,
            taken,
            (&sent, &arrived),
        );
        teller.transfer(&transfer)?;
        Ok(transfer)
    }

    fn measure(&self, teller: &Teller, regime: &str) -> io::Result<Row> {
        let exchange = traffic::request_response(self.connect()?, teller.time)?;
        let inward = traffic::bulk(|| self.connect(), Direction::In, teller.time)?;
        let outward = traffic::bulk(|| self.connect(), Direction::Out, teller.time)?;
        Ok(Row::new(
            format!("netchan, {regime}"),
            inward,
            outward,
            exchange,
        ))
    }
}

/// SHA-256 of what will be sent.
fn digest(bytes: u64) -> String {
    let mut digest = Sha256::new();
    let mut noise = Noise::new(SEED);
    let mut block = vec![0; 1 << 20];
    for _ in 0..bytes / (1 << 20) {
        noise.fill(&mut block);
        digest.update(&block);
    }
    hex(&digest.finalize())
}
