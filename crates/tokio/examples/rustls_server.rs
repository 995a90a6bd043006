//! TLS over netchan, unchanged: two stacks joined by a wire in memory, tokio-rustls on both ends, a certificate made on the spot.
//!
//! `cargo run -p netchan-tokio --example rustls_server`

use std::{error::Error, sync::Arc};

use netchan::Net;
use netchan_tokio::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    },
};

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes that go there and come back.
const SIZE: usize = 1 << 20;

fn stack(wire: &str, address: &str) -> std::io::Result<Net> {
    Net::builder().link(wire)?.address(address)?.start()
}

/// A server with a certificate for `netchan.test`, and a client that trusts it.
fn configurations() -> Result<(ServerConfig, ClientConfig), Failure> {
    let made = rcgen::generate_simple_self_signed(["netchan.test".to_owned()])?;
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.clone())?;
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let client = ClientConfig::builder()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok((server, client))
}

/// Takes one connection and sends back what comes, until its end.
async fn echo(listener: TcpListener, acceptor: TlsAcceptor) -> Result<(), Failure> {
    let (stream, _) = listener.accept().await?;
    let stream = acceptor.accept(stream).await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await?;
    Ok(())
}

/// A mebibyte there and back.
pub async fn run() -> Result<(), Failure> {
    let (server_config, client_config) = configurations()?;
    let server = stack("wire:rustls", "fd77::2/64")?;
    let client = stack("wire:rustls", "fd77::1/64")?;
    let listener = TcpListener::bind(&server, "[::]:443")?;
    let serving = tokio::spawn(echo(listener, TlsAcceptor::from(Arc::new(server_config))));

    let stream = TcpStream::connect(&client, "[fd77::2]:443").await?;
    let name = ServerName::try_from("netchan.test")?;
    let stream = TlsConnector::from(Arc::new(client_config))
        .connect(name, stream)
        .await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..SIZE)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect();
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&copy).await?;
        writer.shutdown().await
    });
    let mut got = Vec::with_capacity(SIZE);
    reader.read_to_end(&mut got).await?;
    writing.await??;
    serving.await??;
    println!("{} bytes there and back over TLS", got.len());
    if got == sent {
        Ok(())
    } else {
        Err("what came back is not what was sent".into())
    }
}

#[allow(dead_code)] // the test calls `run`
fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run())
}
