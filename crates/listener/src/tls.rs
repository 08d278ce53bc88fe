//! TLS of inbound connections: PEM files, rustls with aws-lc-rs, both versions of HTTP by ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain and its key, each a PEM file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What is wrong with certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("{} holds no certificate", .0.display())]
    Empty(PathBuf),
    /// The two do not belong together, or cannot be used.
    #[error("certificate {} and key {} cannot be used: {source}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The two files.
        files: Box<TlsFiles>,
        /// What rustls says.
        #[source]
        source: Box<rustls::Error>,
    },
}

fn unreadable(path: &Path) -> impl FnOnce(rustls_pki_types::pem::Error) -> TlsError {
    let path = path.to_owned();
    |source| TlsError::File { path, source }
}

impl TlsFiles {
    /// Reads both files and checks that they belong together.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect)
            .map_err(unreadable(&self.certificate))?;
        if chain.is_empty() {
            return Err(TlsError::Empty(self.certificate.clone()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(unreadable(&self.key))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("aws-lc-rs has suites for both protocol versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|source| TlsError::Unusable {
                files: Box::new(self.clone()),
                source: Box::new(source),
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}
