//! TLS from certificate files, with rustls and the ring provider.

use std::path::Path;
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// A certificate and its key, ready to serve. Read once: a new certificate needs a restart.
#[derive(Clone)]
pub struct Tls(pub(super) TlsAcceptor);

/// The certificate or the key cannot be used.
#[derive(Debug, Error)]
#[error("tls.{setting} = \"{path}\": {what}")]
pub struct TlsError {
    setting: &'static str,
    path: String,
    what: String,
}

impl Tls {
    /// Reads PEM files: the certificate with its chain, and the private key. Fails when a file cannot be read, or the
    /// two do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let wrong = |setting, path: &Path, what: String| TlsError {
            setting,
            path: path.display().to_string(),
            what,
        };
        let in_certificate = |what: String| wrong("certificate", certificate, what);
        let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| in_certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(in_certificate("holds no certificate in PEM form".into()));
        }
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| wrong("key", key, error.to_string()))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| in_certificate(error.to_string()))?
                .with_no_client_auth()
                .with_single_cert(chain, secret)
                .map_err(|error| wrong("key", key, error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}
