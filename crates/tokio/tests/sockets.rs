//! The async sockets against each other, and the examples as they stand.

use std::{io, net::SocketAddr, time::Duration};

use netchan::Net;
use netchan_tokio::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

#[path = "../examples/hyper_server.rs"]
mod hyper_server;
#[path = "../examples/rustls_server.rs"]
mod rustls_server;

/// No test here takes a second; a lost wake-up takes for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two stacks on a wire of their own.
fn stacks(wire: &str) -> io::Result<(Net, Net)> {
    let stack = |v4: &str, v6: &str| {
        Net::builder()
            .link(&format!("wire:{wire}"))?
            .address(v4)?
            .address(v6)?
            .start()
    };
    Ok((
        stack("10.0.0.1/24", "fd77::1/64")?,
        stack("10.0.0.2/24", "fd77::2/64")?,
    ))
}

/// Runs `test` on two threads, within [`PATIENCE`].
fn block_on(test: impl Future<Output = io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    runtime
        .block_on(async { timeout(PATIENCE, test).await })
        .expect("in time")
        .expect("no error");
}

#[test]
fn hyper_serves_unchanged() {
    block_on(async { hyper_server::run().await.map_err(io::Error::other) });
}

#[test]
fn rustls_serves_unchanged() {
    block_on(async { rustls_server::run().await.map_err(io::Error::other) });
}

#[test]
fn one_task_reads_and_writes_at_once() {
    block_on(async {
        let (client, server) = stacks("tokio-duplex")?;
        let listener = TcpListener::bind(&server, "0.0.0.0:7")?;
        let echo = tokio::spawn(async move {
            let (stream, _) = listener.accept().await?;
            let (mut reader, mut writer) = stream.into_split();
            tokio::io::copy(&mut reader, &mut writer).await
        });
        let address = SocketAddr::from(([10, 0, 0, 2], 7));
        let stream = TcpStream::connect(&client, address).await?;
        assert_eq!(stream.peer_addr()?, address);
        let (mut reader, mut writer) = stream.into_split();
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| i.to_le_bytes()[1]).collect();
        let mut got = Vec::new();
        // One task, one waker, both directions: more than both windows hold, so that each side has to wait for the other.
        let (written, read) = tokio::join!(
            async {
                writer.write_all(&sent).await?;
                writer.shutdown().await
            },
            reader.read_to_end(&mut got)
        );
        written?;
        assert_eq!(read?, sent.len());
        assert!(got == sent);
        assert_eq!(echo.await.expect("no panic")?, sent.len() as u64);
        Ok(())
    });
}

#[test]
fn many_connections_at_once() {
    block_on(async {
        let (client, server) = stacks("tokio-many")?;
        let listener = TcpListener::bind(&server, "[::]:9")?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).await?;
                    stream.write_all(&byte).await
                });
            }
        });
        let address = "[fd77::2]:9";
        let mut tasks = Vec::new();
        for i in 0..100u8 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let mut stream = TcpStream::connect(&client, address).await?;
                stream.write_all(&[i]).await?;
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await?;
                io::Result::Ok(got)
            }));
        }
        for (i, task) in (0..100u8).zip(tasks) {
            assert_eq!(task.await.expect("no panic")?, [i]);
        }
        Ok(())
    });
}

#[test]
fn a_refused_connection_says_so() {
    block_on(async {
        let (client, _server) = stacks("tokio-refused")?;
        let refused = TcpStream::connect(&client, "10.0.0.2:1").await;
        assert_eq!(
            refused.err().map(|e| e.kind()),
            Some(io::ErrorKind::ConnectionRefused)
        );
        let nonsense = TcpListener::bind(&client, "80");
        assert_eq!(
            nonsense.err().map(|e| e.kind()),
            Some(io::ErrorKind::InvalidInput)
        );
        Ok(())
    });
}

#[test]
fn an_accept_that_was_dropped_loses_nothing() {
    block_on(async {
        let (client, server) = stacks("tokio-cancel")?;
        let listener = TcpListener::bind(&server, "0.0.0.0:7")?;
        assert!(
            timeout(Duration::from_millis(20), listener.accept())
                .await
                .is_err()
        );
        let mut stream = TcpStream::connect(&client, "10.0.0.2:7").await?;
        stream.write_all(b"x").await?;
        let (mut accepted, _) = listener.accept().await?;
        let mut byte = [0];
        accepted.read_exact(&mut byte).await?;
        assert_eq!(&byte, b"x");
        Ok(())
    });
}

#[test]
fn datagrams_keep_their_bounds() {
    block_on(async {
        let (client, server) = stacks("tokio-udp")?;
        let server = UdpSocket::bind(&server, "0.0.0.0:53")?;
        let client = UdpSocket::bind(&client, "0.0.0.0:0")?;
        client.connect("10.0.0.2:53")?;
        let mut buffer = [0; 100];
        for round in 0..50u8 {
            client.send(&[round; 3]).await?;
            client.send(&[round; 40]).await?;
            let (first, from) = server.recv_from(&mut buffer).await?;
            assert_eq!(buffer[..first], [round; 3]);
            let (second, _) = server.recv_from(&mut buffer).await?;
            assert_eq!(buffer[..second], [round; 40]);
            server.send_to(&[round], from).await?;
            assert_eq!(client.recv(&mut buffer).await?, 1);
            assert_eq!(buffer[0], round);
        }
        Ok(())
    });
}

#[test]
fn a_stream_is_looked_at_before_it_is_read() {
    block_on(async {
        let (client, server) = stacks("tokio-ready")?;
        let listener = TcpListener::bind(&server, "0.0.0.0:7")?;
        let stream = TcpStream::connect(&client, "10.0.0.2:7").await?;
        let (mut peer, _) = listener.accept().await?;
        let mut block = [0; 16];
        let nothing = stream.try_read(&mut block).err().map(|e| e.kind());
        assert_eq!(nothing, Some(io::ErrorKind::WouldBlock));
        assert!(
            timeout(Duration::from_millis(20), stream.readable())
                .await
                .is_err()
        );
        peer.write_all(b"text").await?;
        stream.readable().await?;
        assert_eq!(stream.peek(&mut block[..2]).await?, 2);
        assert_eq!(stream.peek(&mut block).await?, 4);
        assert_eq!(stream.try_read(&mut block)?, 4);
        assert_eq!(&block[..4], b"text");
        // Until there is no room, and again once the peer has read.
        stream.writable().await?;
        let mut written = 0;
        loop {
            match stream.try_write(&[7; 64 << 10]) {
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        let reads = async {
            let mut all = vec![0; written];
            peer.read_exact(&mut all).await.map(|_| all)
        };
        let (writable, all) = tokio::join!(stream.writable(), reads);
        writable?;
        assert!(all?.iter().all(|&b| b == 7));
        assert!(!stream.nodelay()?);
        stream.set_nodelay(true)?;
        assert!(stream.nodelay()? && stream.take_error()?.is_none());
        Ok(())
    });
}

#[test]
fn halves_become_a_stream_again() {
    block_on(async {
        let (client, server) = stacks("tokio-halves")?;
        let listener = TcpListener::bind(&server, "0.0.0.0:7")?;
        let mut stream = TcpStream::connect(&client, "10.0.0.2:7").await?;
        let (mut peer, _) = listener.accept().await?;
        let mut block = [0; 4];
        let (mut reader, mut writer) = stream.split();
        let (sent, echoed, read) = tokio::join!(
            writer.write_all(b"once"),
            async {
                let mut block = [0; 4];
                peer.read_exact(&mut block).await?;
                peer.write_all(&block).await
            },
            reader.read_exact(&mut block)
        );
        sent.and(echoed)?;
        read?;
        assert_eq!(&block, b"once");
        let (reader, writer) = stream.into_split();
        let other = TcpStream::connect(&client, "10.0.0.2:7").await?;
        let (others, theirs) = other.into_split();
        let error = reader.reunite(theirs).expect_err("of two streams");
        assert_eq!(error.to_string(), "the two halves are of two streams");
        let (reader, theirs) = (error.0, error.1);
        others.reunite(theirs).expect("of one stream");
        let mut stream = writer.reunite(reader).expect("of one stream");
        // Nothing was shut meanwhile.
        stream.write_all(b"more").await?;
        peer.read_exact(&mut block).await?;
        assert_eq!(&block, b"more");
        let (reader, writer) = stream.into_split();
        writer.forget();
        assert!(
            timeout(Duration::from_millis(20), peer.read(&mut block))
                .await
                .is_err()
        );
        drop(reader);
        assert_eq!(peer.read(&mut block).await?, 0);
        Ok(())
    });
}

#[test]
fn options_come_before_connect_and_listen() {
    block_on(async {
        let (client, server) = stacks("tokio-options")?;
        let two: [io::Result<TcpListener>; 2] = [(); 2].map(|()| {
            let socket = TcpSocket::new_v4(&server)?;
            socket.set_reuseport(true)?;
            socket.bind("0.0.0.0:7".parse().expect("an address"))?;
            socket.listen(8)
        });
        let [first, second] = two;
        let (first, second) = (first?, second?);
        let socket = TcpSocket::new_v4(&client)?;
        socket.set_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.set_recv_buffer_size(32 << 10)?;
        socket.set_send_buffer_size(32 << 10)?;
        socket.bind("10.0.0.1:1234".parse().expect("an address"))?;
        let stream = socket
            .connect("10.0.0.2:7".parse().expect("an address"))
            .await?;
        assert_eq!(stream.local_addr()?.port(), 1234);
        assert!(stream.nodelay()?);
        let (_accepted, from) = tokio::select! {
            accepted = first.accept() => accepted?,
            accepted = second.accept() => accepted?,
        };
        assert_eq!(from.port(), 1234);
        assert!(format!("{stream:?} {first:?}").contains("TcpStream { local: Some(10.0.0.1:1234)"));
        Ok(())
    });
}

#[test]
fn datagrams_are_tried_and_peeked() {
    block_on(async {
        let (client, server) = stacks("tokio-tried")?;
        let server = UdpSocket::bind(&server, "0.0.0.0:53")?;
        let client = UdpSocket::bind(&client, ("10.0.0.1", 0))?;
        let mut block = [0; 16];
        let nothing = server.try_recv_from(&mut block).err().map(|e| e.kind());
        assert_eq!(nothing, Some(io::ErrorKind::WouldBlock));
        client.writable().await?;
        client.try_send_to(b"one", "10.0.0.2:53".parse().expect("an address"))?;
        server.readable().await?;
        assert_eq!(server.peek_from(&mut block).await?.0, 3);
        let (n, from) = server.try_recv_from(&mut block)?;
        assert_eq!((&block[..n], from), (&b"one"[..], client.local_addr()?));
        client.connect("10.0.0.2:53")?;
        assert_eq!(client.peer_addr()?.port(), 53);
        client.try_send(b"two")?;
        assert_eq!(server.recv(&mut block).await?, 3);
        let none: &[SocketAddr] = &[];
        let kind = client.send_to(b"x", none).await.err().map(|e| e.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput));
        Ok(())
    });
}

/// As `axum::serve` asks it.
#[cfg(feature = "axum")]
#[test]
fn axum_takes_the_listener() {
    use axum::serve::Listener;
    block_on(async {
        let (client, server) = stacks("tokio-axum")?;
        let listener = TcpListener::bind(&server, "0.0.0.0:80")?;
        assert_eq!(Listener::local_addr(&listener)?.port(), 80);
        let hello = axum::Router::new().fallback(|| async { "hello" });
        tokio::spawn(axum::serve(listener, hello).into_future());
        let mut stream = TcpStream::connect(&client, "10.0.0.2:80").await?;
        stream
            .write_all(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
        Ok(())
    });
}
