//! TLS between a run and its agents: the run has a key of its own, and an agent trusts that key and no other.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The name in the certificate; agents compare fingerprints, not names.
const NAME: &str = "allranks";

/// The key of a run.
pub(super) struct Key {
    acceptor: TlsAcceptor,
    /// SHA-256 of its certificate, in hexadecimal.
    pub(super) fingerprint: String,
}

impl Key {
    /// Makes a key, and a certificate that it signs itself.
    ///
    /// # Errors
    /// Fails if the system gives no random numbers.
    pub(super) fn new() -> io::Result<Self> {
        let made =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let fingerprint = fingerprint(&certificate);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(io::Error::other)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            fingerprint,
        })
    }

    /// Makes the run's side of the handshake.
    ///
    /// # Errors
    /// Fails if the peer speaks no TLS or does not trust this key.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

/// Makes an agent's side of the handshake, with the run whose key has this fingerprint.
///
/// # Errors
/// Fails if the peer speaks no TLS or has another key.
pub(super) async fn connect(
    stream: TcpStream,
    fingerprint: &str,
) -> io::Result<client::TlsStream<TcpStream>> {
    let provider = Arc::new(ring::default_provider());
    let trust = Arc::new(Trust {
        fingerprint: fingerprint.to_owned(),
        provider: Arc::clone(&provider),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(trust)
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    format!("{:x}", Sha256::digest(certificate))
}

/// Trusts the certificate with one fingerprint.
#[derive(Debug)]
struct Trust {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match fingerprint(end_entity) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
