//! The demo's steps where Linux's own TCP/IP is the peer: over TAP, or AF_PACKET on a virtual Ethernet.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use netchan::control;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    Means, Row, SEED, Teller, Transfer,
    place::{Place, Worker, own_program},
    regimes, size,
    traffic::{self, Direction, Noise, hex},
    transfer_of,
};
use crate::{
    failure::{Failure, Outcome, at, failed},
    netlink,
    units::{self, now_ns},
};

/// How long a server may take until it can be reached.
const START_TIME: Duration = Duration::from_secs(15);
/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(15);
/// The file that goes both ways.
const FILE: &str = "random.bin";

/// All steps.
pub fn steps(teller: &Teller, means: Means) -> Result<(Vec<Transfer>, Vec<Row>), Failure> {
    crate::run::library()?; // before anything is made
    let place = Place::new()?;
    if means == Means::Packet {
        virtual_ethernet().map_err(|e| failed(format!("setting up the virtual Ethernet: {e}")))?;
    }
    let stage = Stage {
        teller,
        place,
        link: link_of(means),
        curl: find("curl"),
    };
    let digest = stage.make_file()?;
    let outward = stage.web_server(&digest)?;
    let inward = stage.upload(&digest)?;
    let mut rows = Vec::new();
    teller.say("\nThe same small server and client for each regime, and for Linux's loopback")?;
    for regime in regimes() {
        rows.push(stage.measure(Some(regime))?);
    }
    rows.push(stage.measure(None)?);
    Ok((vec![outward, inward], rows))
}

fn link_of(means: Means) -> &'static str {
    match means {
        Means::Tap if !netlink::has_ipv6() => "tap:nc0,peer=10.77.0.1/24",
        Means::Tap => "tap:nc0,peer=10.77.0.1/24,peer=fd77::1/64",
        Means::Packet => "packet:nc0",
        Means::Wire => "wire:demo",
    }
}

/// nc0 for netchan, nc0-linux for the kernel.
fn virtual_ethernet() -> Result<(), rustix::io::Errno> {
    netlink::veth_pair("nc0", "nc0-linux", 1500)?;
    // The kernel is to have nothing to say on our end. Refused where /proc/sys is read-only: then it has a little.
    let _ = fs::write("/proc/sys/net/ipv6/conf/nc0/disable_ipv6", "1");
    let _ = fs::write("/proc/sys/net/ipv4/ip_forward", "0");
    netlink::up("nc0")?;
    netlink::up("nc0-linux")?;
    netlink::address("nc0-linux", [10, 77, 0, 1].into(), 24)?;
    if netlink::has_ipv6() {
        netlink::address("nc0-linux", [0xfd77, 0, 0, 0, 0, 0, 0, 1].into(), 64)?;
    }
    Ok(())
}

/// Where a program of this name is.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The interpreter itself, behind whatever scripts stand before it, if it has the web server.
fn python() -> Option<PathBuf> {
    let found = Command::new(find("python3")?)
        .args(["-c", "import http.server, sys; print(sys.executable)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    (found.status.success() && path.is_file()).then_some(path)
}

struct Stage<'a> {
    teller: &'a Teller,
    place: Place,
    link: &'static str,
    curl: Option<PathBuf>,
}

impl Stage<'_> {
    fn file(&self) -> PathBuf {
        self.place.path().join("files").join(FILE)
    }

    /// Writes the file; its SHA-256.
    fn make_file(&self) -> Result<String, Failure> {
        let bytes = self.teller.bytes;
        let path = self.file();
        fs::create_dir(path.parent().unwrap_or(Path::new("/"))).map_err(at(path.display()))?;
        let bar = self.teller.bar("making a file", bytes);
        let mut noise = Noise::new(SEED);
        let mut digest = Sha256::new();
        let mut file = File::create(&path).map_err(at(path.display()))?;
        let mut block = vec![0; 1 << 20];
        for _ in 0..bytes / (1 << 20) {
            noise.fill(&mut block);
            digest.update(&block);
            file.write_all(&block).map_err(at(path.display()))?;
            bar.inc(block.len() as u64);
        }
        bar.finish_and_clear();
        Ok(hex(&digest.finalize()))
    }

    /// `netchan run … -- PROGRAM`, as a process, once a kernel socket can reach it.
    fn start(
        &self,
        name: &str,
        regime: Option<&str>,
        program: &[OsString],
        address: SocketAddr,
    ) -> Result<Worker, Failure> {
        let mut command: Vec<OsString> = vec![own_program()?.into(), "run".into()];
        command.extend(
            [
                "--link",
                self.link,
                "--address",
                "10.77.0.2/24",
                "--address",
                "fd77::2/64",
            ]
            .map(Into::into),
        );
        if let Some(regime) = regime {
            command.extend(["--regime".into(), regime.into()]);
        }
        command.push("--".into());
        command.extend_from_slice(program);
        self.start_plainly(name, &command, address)
    }

    fn start_plainly(
        &self,
        name: &str,
        command: &[OsString],
        address: SocketAddr,
    ) -> Result<Worker, Failure> {
        let mut worker = self.place.start(name, command)?;
        let end = now_ns() + u64::try_from(START_TIME.as_nanos()).unwrap_or(u64::MAX / 2);
        loop {
            worker.check()?;
            match TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
                Ok(_) => return Ok(worker),
                Err(e) if now_ns() > end => {
                    let what = format!(
                        "{name} cannot be reached at {address} after {} s",
                        START_TIME.as_secs()
                    );
                    return Err(worker.explain(&what, &e));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Our own small server's command line.
    fn small_server(&self, address: SocketAddr) -> Result<Vec<OsString>, Failure> {
        let files = self.file();
        let files = files.parent().unwrap_or(Path::new("/"));
        Ok(vec![
            own_program()?.into(),
            "__inner".into(),
            "serve".into(),
            "--listen".into(),
            address.to_string().into(),
            "--directory".into(),
            files.into(),
        ])
    }

    /// A file out of netchan, from the server program that every machine has.
    fn web_server(&self, digest: &str) -> Result<Transfer, Failure> {
        let address = SocketAddr::from(([10, 77, 0, 2], 8000));
        let (name, program) = match python() {
            Some(python) => {
                let files = self.file().with_file_name("");
                let rest = ["-m", "http.server", "8000", "--directory"].map(OsString::from);
                let mut program = vec![python.into_os_string()];
                program.extend(rest);
                program.push(files.into());
                ("python3 -m http.server", program)
            }
            None => (
                "a small server on std::net",
                self.small_server(SocketAddr::from(([0, 0, 0, 0], 8000)))?,
            ),
        };
        self.teller.say(&format!(
            "\nA file of {} out of netchan",
            size(self.teller.bytes)
        ))?;
        self.teller.say(&format!(
            "    Server: {name}, unmodified:  netchan run --link {} … -- {name}",
            self.link
        ))?;
        let mut worker = self.start("the web server", None, &program, address)?;
        let client = self.client();
        self.teller.say(&format!(
            "    Client: {client}, on Linux's TCP:  http://{address}/{FILE}"
        ))?;
        let started = now_ns();
        let arrived = self
            .fetch(address)
            .map_err(|e| worker.explain("fetching the file", &e))?;
        let taken = now_ns() - started;
        let (bytes, digests) = (self.teller.bytes, (digest, arrived.as_str()));
        let transfer = transfer_of("out of netchan", (name, client), bytes, taken, digests);
        self.teller.transfer(&transfer)?;
        self.counters(&worker)?;
        Ok(transfer)
    }

    /// A file into netchan, over IPv6 where Linux does it here.
    fn upload(&self, digest: &str) -> Result<Transfer, Failure> {
        let name = "a small server on std::net";
        let (family, address, any) = if netlink::has_ipv6() {
            let own = [0xfd77, 0, 0, 0, 0, 0, 0, 2];
            (
                "IPv6",
                SocketAddr::from((own, 8001)),
                SocketAddr::from(([0_u16; 8], 8001)),
            )
        } else {
            (
                "IPv4",
                SocketAddr::from(([10, 77, 0, 2], 8001)),
                SocketAddr::from(([0; 4], 8001)),
            )
        };
        self.teller.say(&format!(
            "\nThe same file into netchan, over {family} ({name}, which hashes what it gets)"
        ))?;
        let server = self.small_server(any)?;
        let mut worker = self.start("the upload server", None, &server, address)?;
        let client = self.client();
        self.teller.say(&format!(
            "    Client: {client}, on Linux's TCP:  http://{address}/upload"
        ))?;
        let started = now_ns();
        let arrived = self
            .send_file(address)
            .map_err(|e| worker.explain("uploading the file", &e))?;
        let taken = now_ns() - started;
        let (bytes, digests) = (self.teller.bytes, (digest, arrived.as_str()));
        let transfer = transfer_of("into netchan", (name, client), bytes, taken, digests);
        self.teller.transfer(&transfer)?;
        self.counters(&worker)?;
        Ok(transfer)
    }

    /// What `netchan show counters` says about the stack of `worker`, if it answers.
    fn counters(&self, worker: &Worker) -> Outcome {
        let stack = control::stacks()
            .into_iter()
            .find(|stack| stack.pid == worker.pid());
        let Some(Ok(Value::Array(rows))) = stack.map(|stack| stack.show("counters")) else {
            return Ok(());
        };
        let of = |name: &str| {
            let row = rows
                .iter()
                .find(|row| row.get("name").is_some_and(|n| n == name));
            row.and_then(|row| row.get("value"))
                .and_then(Value::as_f64)
                .unwrap_or(0.0)
        };
        self.teller.say(&format!(
            "    Its stack (netchan show counters): {} segments in, {} out, {} sent again, {} with a wrong checksum.",
            units::count(of("tcp_segments_in")),
            units::count(of("tcp_segments_out")),
            units::count(of("tcp_retransmits")),
            units::count(of("drop_tcp_checksum")),
        ))
    }

    fn client(&self) -> &'static str {
        if self.curl.is_some() {
            "curl"
        } else {
            "a small client on std::net"
        }
    }

    /// `curl`, ready to be given its arguments; killed when we are.
    fn curl(&self, curl: &Path) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["__inner", "child", &std::process::id().to_string(), "--"])
            .arg(curl)
            .args([
                "--silent",
                "--show-error",
                "--fail",
                "--noproxy",
                "*",
                "--globoff",
                "--max-time",
                "120",
            ])
            .stdin(Stdio::null());
        Ok(command)
    }

    fn fetch(&self, address: SocketAddr) -> io::Result<String> {
        let bar = self.teller.bar("fetching", self.teller.bytes);
        let digest = match &self.curl {
            None => traffic::fetch(connect(address)?, &format!("/{FILE}"), &mut |n| bar.inc(n))?.1,
            Some(curl) => {
                let mut child = self
                    .curl(curl)?
                    .arg(format!("http://{address}/{FILE}"))
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()?;
                let mut digest = Sha256::new();
                let mut block = vec![0; 256 << 10];
                if let Some(mut body) = child.stdout.take() {
                    loop {
                        let n = body.read(&mut block)?;
                        if n == 0 {
                            break;
                        }
                        digest.update(block.get(..n).unwrap_or_default());
                        bar.inc(n as u64);
                    }
                }
                let done = child.wait_with_output()?;
                if !done.status.success() {
                    return Err(io::Error::other(
                        String::from_utf8_lossy(&done.stderr).trim().to_owned(),
                    ));
                }
                hex(&digest.finalize())
            }
        };
        bar.finish_and_clear();
        Ok(digest)
    }

    /// The digest that the server computed.
    fn send_file(&self, address: SocketAddr) -> io::Result<String> {
        match &self.curl {
            None => {
                let bar = self.teller.bar("uploading", self.teller.bytes);
                let mut file = File::open(self.file())?;
                let digest =
                    traffic::upload(connect(address)?, &mut file, self.teller.bytes, &mut |n| {
                        bar.inc(n)
                    });
                bar.finish_and_clear();
                digest
            }
            Some(curl) => {
                let spinner = self.teller.spinner("uploading");
                let done = self
                    .curl(curl)?
                    .args(["--header", "Expect:", "--upload-file"])
                    .arg(self.file())
                    .arg(format!("http://{address}/upload"))
                    .output();
                spinner.finish_and_clear();
                let done = done?;
                if !done.status.success() {
                    return Err(io::Error::other(
                        String::from_utf8_lossy(&done.stderr).trim().to_owned(),
                    ));
                }
                Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
            }
        }
    }

    /// One row: a server on netchan under `regime`, or (`None`) on the kernel's loopback.
    fn measure(&self, regime: Option<&str>) -> Result<Row, Failure> {
        let title = regime.map_or("Linux, loopback".to_owned(), |regime| {
            format!("netchan, {regime}")
        });
        let spinner = self.teller.spinner(&format!("measuring {title}"));
        let (address, mut worker) = match regime {
            Some(_) => {
                let address = SocketAddr::from(([10, 77, 0, 2], 7000));
                let program = self.small_server(SocketAddr::from(([0, 0, 0, 0], 7000)))?;
                (
                    address,
                    self.start("the server", regime, &program, address)?,
                )
            }
            None => {
                let address = free_loopback_port().map_err(at("127.0.0.1"))?;
                (
                    address,
                    self.start_plainly("the server", &self.small_server(address)?, address)?,
                )
            }
        };
        let row = figures(self.teller, &title, address);
        spinner.finish_and_clear();
        row.map_err(|e| worker.explain(&title, &e))
    }
}

/// Latency and throughput from this process's kernel sockets to the server at `address`.
pub fn figures(teller: &Teller, title: &str, address: SocketAddr) -> io::Result<Row> {
    let exchange = traffic::request_response(connect(address)?, teller.time)?;
    let inward = traffic::bulk(|| connect(address), Direction::In, teller.time)?;
    let outward = traffic::bulk(|| connect(address), Direction::Out, teller.time)?;
    Ok(Row::new(title, inward, outward, exchange))
}

/// A row for the kernel's loopback, the server in a thread.
pub fn loopback(teller: &Teller) -> Result<Row, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(at("127.0.0.1"))?;
    let address = listener.local_addr().map_err(at("127.0.0.1"))?;
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let _ = stream.set_nodelay(true);
            thread::spawn(move || traffic::serve(stream, None));
        }
    });
    figures(teller, "Linux, loopback", address).map_err(at("Linux's loopback"))
}

fn free_loopback_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// A kernel socket that does not wait for ever.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, SILENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    Ok(stream)
}
