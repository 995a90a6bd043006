//! The async sockets against each other, and the examples as they stand.

use std::{io, time::Duration};

use netchan::Net;
use netchan_tokio::{TcpListener, TcpStream, UdpSocket};
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
        let address = "10.0.0.2:7".parse().expect("an address");
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
        let address = "[fd77::2]:9".parse().expect("an address");
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
        let refused = TcpStream::connect(&client, "10.0.0.2:1".parse().expect("an address")).await;
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
        let mut stream =
            TcpStream::connect(&client, "10.0.0.2:7".parse().expect("an address")).await?;
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
        client.connect("10.0.0.2:53".parse().expect("an address"))?;
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
