//! TLS with a certificate that signs itself, against the real binary.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tallyring_tests::server::{Server, binary, tallyring, tallyring_ok};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::http::{Reply, address, connect};

/// A configuration with a new certificate for `localhost`.
fn certificate(directory: &Path) -> (String, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("certify");
    let [pem, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    fs::write(&pem, made.cert.pem()).expect("write the certificate");
    fs::write(&key, made.signing_key.serialize_pem()).expect("write the key");
    let config = directory.join("tallyring.toml");
    let text = format!("[tls]\ncertificate = {pem:?}\nkey = {key:?}\n");
    fs::write(&config, text).expect("write the configuration");
    let path = config.to_str().expect("a path of text").to_owned();
    (path, made.cert.der().clone())
}

/// GET over TLS; the protocol that was agreed on, and the answer to HTTP/1.1.
fn get(address: SocketAddr, root: &CertificateDer<'static>, alpn: &[u8]) -> (Vec<u8>, String) {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("trust the certificate");
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
    runtime.block_on(async {
        let stream = TcpStream::connect(address).await.expect("connect");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = connector.connect(name, stream).await.expect("shake hands");
        let protocol = stream.get_ref().1.alpn_protocol().unwrap_or_default();
        let protocol = protocol.to_vec();
        if alpn == b"h2" {
            return (protocol, String::new());
        }
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("send");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        (protocol, text)
    })
}

#[test]
fn it_speaks_tls_and_commands_of_its_owner_need_no_certificate() {
    let directory = TempDir::new().expect("make a directory");
    let (config, root) = certificate(directory.path());
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--config", &config]);
    let url = server.client().url();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let (protocol, text) = get(address(url), &root, b"http/1.1");
    assert_eq!(protocol, b"http/1.1");
    assert_eq!(Reply::parse(&text).status, 200, "{text}");
    let (protocol, _) = get(address(url), &root, b"h2");
    assert_eq!(protocol, b"h2");

    let data = data.to_str().expect("a path of text");
    let key = tallyring_ok(&["key", "new", "--scope", "read", "--data", data]);
    assert!(key.starts_with("tr_"), "{key}");
    tallyring_ok(&["query", "l/abc", "--data", data]);
    server.terminate();
}

#[test]
fn commands_reach_a_server_over_tls_if_they_trust_its_certificate() {
    let directory = TempDir::new().expect("make a directory");
    let (config, _) = certificate(directory.path());
    let server = Server::start(&directory.path().join("data"), &["--config", &config]);
    let to = server.client().url().replace("127.0.0.1", "localhost");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (pem, clicks) = (path("certificate.pem"), path("clicks.jsonl"));
    fs::write(&clicks, "{\"t\":1331900000,\"g\":\"a\"}\n").expect("write the clicks");
    let send = [
        "send", &clicks, "--map", "key.l=g", "--map", "at=t", "--to", &to,
    ];
    let query = ["query", "l/a", "--units", "-1", "--to", &to];

    for arguments in [&send[..], &query, &["status", "--to", &to]] {
        let distrusts = tallyring(arguments);
        assert_eq!(distrusts.code, 1, "{distrusts:?}");
        assert!(distrusts.stderr.contains("--cacert"), "{distrusts:?}");
    }
    let trusting = ["--cacert", &pem];
    tallyring_ok(&[&send[..], &trusting].concat());
    let counted = tallyring_ok(&[&query[..], &trusting].concat());
    assert!(counted.contains("total"), "{counted}");
    tallyring_ok(&["status", "--to", &to, "--cacert", &pem]);

    // Without the option commands trust what the system trusts.
    let by_system = Command::new(binary())
        .args(query)
        .env("SSL_CERT_FILE", &pem)
        .output();
    assert!(by_system.expect("run tallyring").status.success());
    server.terminate();
}

#[test]
fn a_handshake_that_does_not_come_is_given_up() {
    let directory = TempDir::new().expect("make a directory");
    let (config, _) = certificate(directory.path());
    let server = Server::start(&directory.path().join("data"), &["--config", &config]);
    let mut stream = connect(address(server.client().url()));
    let began = Instant::now();
    let read = std::io::Read::read(&mut stream, &mut [0; 16]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let directory = TempDir::new().expect("make a directory");
    let (config, _) = certificate(directory.path());
    fs::write(directory.path().join("key.pem"), "no key").expect("spoil the key");
    let data = directory.path().join("data");
    let data = data.to_str().expect("a path of text");
    let finished = tallyring(&[
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--config",
        &config,
    ]);
    assert_eq!(finished.code, 2, "{finished:?}");
    assert!(finished.stderr.contains("tls.key"), "{finished:?}");
}
