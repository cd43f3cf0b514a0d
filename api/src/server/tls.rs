//! TLS from certificate files, with rustls and the ring provider: as a server, and as a node that asks others.

use std::path::Path;
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};

/// A certificate and its key, ready to serve. Read once: a new certificate needs a restart.
#[derive(Clone)]
pub struct Tls(pub(super) TlsAcceptor);

/// The certificates by which a node believes others. Read once, as those of [`Tls`].
#[derive(Clone)]
pub struct Trust(pub(crate) Arc<ClientConfig>);

/// A certificate or a key cannot be used.
#[derive(Debug, Error)]
#[error("{setting} = \"{path}\": {what}")]
pub struct TlsError {
    setting: &'static str,
    path: String,
    what: String,
}

impl Tls {
    /// Reads PEM files: the certificate with its chain, and the private key. Fails when a file cannot be read, or the
    /// two do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let in_certificate = |what: String| wrong("tls.certificate", certificate, what);
        let chain = certificates(certificate).map_err(in_certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| wrong("tls.key", key, error.to_string()))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| in_certificate(error.to_string()))?
                .with_no_client_auth()
                .with_single_cert(chain, secret)
                .map_err(|error| wrong("tls.key", key, error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl Trust {
    /// Trusts the certificates of the PEM file `ca`, or those that the system trusts. Fails when the file cannot be
    /// read, or has none that can be used. A system may have none: then no certificate is trusted.
    pub fn load(ca: Option<&Path>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(path) => {
                let in_file = |what: String| wrong("cluster.ca", path, what);
                for certificate in certificates(path).map_err(in_file)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| in_file(error.to_string()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(Self::of(roots))
    }

    /// Trusts nobody, so all other nodes must be asked without TLS.
    pub(crate) fn nobody() -> Self {
        Self::of(RootCertStore::empty())
    }

    fn of(roots: RootCertStore) -> Self {
        let config =
            ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("BUG: the provider has them")
                .with_root_certificates(roots)
                .with_no_client_auth();
        Self(Arc::new(config))
    }
}

/// The certificates of a PEM file, one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| error.to_string())?;
    match read.is_empty() {
        true => Err("holds no certificate in PEM form".into()),
        false => Ok(read),
    }
}

fn wrong(setting: &'static str, path: &Path, what: String) -> TlsError {
    TlsError {
        setting,
        path: path.display().to_string(),
        what,
    }
}
