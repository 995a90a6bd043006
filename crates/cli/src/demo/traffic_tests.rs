//! Client and server over the kernel's loopback.

use std::{
    io::Cursor,
    net::{TcpListener, TcpStream},
    thread,
};

use super::*;

/// A server for `n` connections.
fn server(n: usize, directory: Option<std::path::PathBuf>) -> impl Fn() -> io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(n) {
            let directory = directory.clone();
            thread::spawn(move || serve(stream.unwrap(), directory.as_deref()));
        }
    });
    move || {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(stream)
    }
}

fn digest_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[test]
fn files_go_both_ways_whole() {
    let directory = std::env::temp_dir().join(format!("netchan-traffic-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut content = vec![0; 3_000_001];
    Noise::new(7).fill(&mut content);
    fs::write(directory.join("file"), &content).unwrap();
    let connect = server(4, Some(directory.clone()));
    let mut seen = 0;
    let fetched = fetch(connect().unwrap(), "/file", &mut |n| seen += n).unwrap();
    assert_eq!(fetched, (3_000_001, digest_of(&content)));
    assert_eq!(seen, 3_000_001);
    let uploaded = upload(
        connect().unwrap(),
        &mut Cursor::new(&content),
        3_000_001,
        &mut |_| (),
    )
    .unwrap();
    assert_eq!(uploaded, digest_of(&content));
    assert!(
        fetch(connect().unwrap(), "/missing", &mut |_| ())
            .unwrap_err()
            .to_string()
            .contains("404")
    );
    assert!(fetch(connect().unwrap(), "/../../etc/passwd", &mut |_| ()).is_err());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn figures_come_out() {
    let connect = server(5, None);
    let rr = request_response(connect().unwrap(), Duration::from_millis(50)).unwrap();
    assert!(
        rr.p50_ns > 0.0 && rr.p99_ns >= rr.p50_ns && rr.per_s > 1.0,
        "{rr:?}"
    );
    for direction in [Direction::In, Direction::Out] {
        assert!(bulk(&connect, direction, Duration::from_millis(50)).unwrap() > 0.0);
    }
}

#[test]
fn a_server_survives_nonsense() {
    for request in [
        "",
        "\n",
        "GET",
        "PUT / HTTP/1.1\r\n\r\n",
        "SINK x\n",
        "SINK 10\nabc",
        "SEND -1\n",
        "PUT / x\nContent-Length: 9999999999999999999999\n\n",
    ] {
        // A stream that ends after the request.
        struct End(Cursor<Vec<u8>>);
        impl Read for End {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl Write for End {
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                Ok(buffer.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let _ = serve(End(Cursor::new(request.as_bytes().to_vec())), None);
    }
    let endless = "a".repeat(100_000);
    assert!(read_line(&mut Cursor::new(endless)).is_err());
    let headers = "X: y\n".repeat(200);
    assert!(read_headers(&mut Cursor::new(headers)).is_err());
}
