//! TLS of outbound connections: rustls with aws-lc-rs, the machine's roots where it has any, else
//! those of the browsers.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// A client configuration that trusts the usual roots and `extra`. ALPN is set by the connector.
pub(crate) fn client_config(extra: &[CertificateDer<'static>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::debug!(error = %error, "a root certificate of this machine could not be read");
    }
    let (added, _ignored) = roots.add_parsable_certificates(native.certs);
    if added == 0 {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots.add_parsable_certificates(extra.iter().cloned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs has suites for both protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
