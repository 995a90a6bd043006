//! Answers that are not read: a large one holds its connection no longer than any other, unless it says that it may.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream as Stream,
    sync::mpsc::channel,
};

use super::*;

/// More than the buffers of a connection hold.
const SIZE: usize = 64 << 20;
/// Of a connection.
const TIME: Duration = Duration::from_millis(200);

/// Serves from a thread that lives as long as the process: `/large` as such, `/big` without a word, anything else at once. Where.
fn served() -> SocketAddr {
    let (say, said) = channel();
    let all = Bytes::from(vec![b'x'; SIZE]);
    std::thread::spawn(move || {
        let begun = |address| say.send(address).map_err(failed);
        let here = "127.0.0.1:0".parse().expect("an address");
        serve(here, TIME, 1, begun, move |request| {
            let all = all.clone();
            async move {
                let path = request.uri().path();
                let small = Bytes::from_static(b"small");
                let mut response = Response::new(Full::new(match path {
                    "/large" | "/big" => all,
                    _ => small,
                }));
                if path == "/large" {
                    response.extensions_mut().insert(Large);
                }
                response
            }
        })
    });
    said.recv().expect("it serves")
}

fn asked(address: SocketAddr, path: &str) -> Stream {
    let mut stream = Stream::connect(address).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    stream
}

#[test]
fn clients_that_never_read_are_let_go() {
    let address = served();
    let idle: Vec<Stream> = (0..2 * CONNECTIONS + 8)
        .map(|_| asked(address, "/big"))
        .collect();
    let mut answer = String::new();
    asked(address, "/")
        .read_to_string(&mut answer)
        .expect("an answer");
    assert!(answer.ends_with("small"), "{answer}");
    drop(idle);
}

#[test]
fn a_large_answer_may_be_read_slowly() {
    let mut stream = asked(served(), "/large");
    std::thread::sleep(4 * TIME);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.len() > SIZE, "{} bytes", answer.len());
}
