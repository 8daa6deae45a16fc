//! Where certificates come from and when they are read again.
//!
//! Files are read at the start, where a fault ends the process with the file's name, and then every [`RELOAD`] by content: mounted
//! Secrets change by a swap of links, which file notifications miss. A change that can't be read keeps the certificates that are in use, and is
//! logged once. New connections use what was read last. No session is resumed: every connection is checked anew, and [`ServerTls::trusts`]
//! says whether an open one would still be let in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::host::Host;

/// How often files are looked at.
pub const RELOAD: Duration = Duration::from_secs(10);

/// What is wrong with certificates or keys. Never contains a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read or holds no certificate or key.
    #[error("{what} file {} can't be read: {why}", path.display())]
    File {
        /// "certificate", "private key" or "CA".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the reader said.
        why: String,
    },
    /// Certificate, key and CA don't go together.
    #[error("TLS can't be set up with {}: {why}", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What the TLS library said.
        why: String,
    },
    /// No certificate of its own could be made.
    #[error("a self-signed certificate can't be made: {0}")]
    SelfSigned(String),
}

/// Whether a server asks clients for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// No client certificate is looked at.
    Off,
    /// One that is sent must be signed by this CA.
    Optional(PathBuf),
    /// Nobody connects without one of this CA.
    Required(PathBuf),
}

/// Files of a server.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// Certificate chain in PEM, the server's own first.
    pub certificate: PathBuf,
    /// Private key in PEM.
    pub private_key: PathBuf,
    /// Whom it lets in.
    pub client_auth: ClientAuth,
}

/// A server's certificates, always as they were read last.
#[derive(Clone)]
pub struct ServerTls {
    loaded: Arc<ArcSwap<Loaded>>,
    source: Arc<Source>,
    client_auth: ClientAuth,
    protocols: &'static [&'static [u8]],
    changed: watch::Sender<()>,
}

/// What is in use.
struct Loaded {
    config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// Where the server's own certificate comes from.
enum Source {
    Files {
        certificate: PathBuf,
        private_key: PathBuf,
    },
    Made {
        certificate: CertificateDer<'static>,
        private_key: PrivateKeyDer<'static>,
    },
}

impl ServerTls {
    /// Reads the files. `protocols` are the ALPN names in order of preference.
    pub fn load(files: ServerFiles, protocols: &'static [&'static [u8]]) -> Result<Self, TlsError> {
        let source = Source::Files {
            certificate: files.certificate,
            private_key: files.private_key,
        };
        Self::new(source, files.client_auth, protocols)
    }

    /// A certificate made now for `localhost` and `127.0.0.1`, for endpoints that nobody gave one.
    pub fn self_signed(
        client_auth: ClientAuth,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made =
            rcgen::generate_simple_self_signed(names).map_err(|e| TlsError::SelfSigned(e.to_string()))?;
        let source = Source::Made {
            certificate: made.cert.der().clone(),
            private_key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der())),
        };
        Self::new(source, client_auth, protocols)
    }

    fn new(
        source: Source,
        client_auth: ClientAuth,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        Ok(Self {
            loaded: Arc::new(ArcSwap::from_pointee(loaded(&source, &client_auth, protocols)?)),
            source: Arc::new(source),
            client_auth,
            protocols,
            changed: watch::Sender::new(()),
        })
    }

    /// What new connections use.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.load().config)
    }

    /// Whether a client with this chain of certificates, its own first, would be let in now.
    pub fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some(verifier) = self.loaded.load().verifier.clone() else {
            return true;
        };
        let now = UnixTime::since_unix_epoch(crate::clock::unix());
        chain
            .split_first()
            .is_some_and(|(own, intermediates)| verifier.verify_client_cert(own, intermediates, now).is_ok())
    }

    /// Tells when the files changed.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads the files again for as long as the process lives.
    pub fn watch(&self, host: &Host) {
        let mut paths = Vec::new();
        if let Source::Files {
            certificate,
            private_key,
        } = self.source.as_ref()
        {
            paths.extend([certificate.clone(), private_key.clone()]);
        }
        if let ClientAuth::Optional(ca) | ClientAuth::Required(ca) = &self.client_auth {
            paths.push(ca.clone());
        }
        let tls = self.clone();
        if !paths.is_empty() {
            poll(host, paths, move || tls.reload());
        }
    }

    /// Reads the files now. On a fault what is in use stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = loaded(&self.source, &self.client_auth, self.protocols)?;
        self.loaded.store(Arc::new(loaded));
        self.changed.send_replace(());
        Ok(())
    }
}

/// Files of a client.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// CA that signed the server's certificate, in PEM.
    pub ca: PathBuf,
    /// The client's certificate chain in PEM.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub private_key: PathBuf,
}

/// A client's certificates, always as they were read last.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ArcSwap<ClientConfig>>,
    files: ClientFiles,
    changed: watch::Sender<()>,
}

impl ClientTls {
    /// Reads the files.
    pub fn load(files: ClientFiles) -> Result<Self, TlsError> {
        let config = Arc::new(ArcSwap::from_pointee(client_config(&files)?));
        Ok(Self {
            config,
            files,
            changed: watch::Sender::new(()),
        })
    }

    /// What new connections use.
    pub fn current(&self) -> Arc<ClientConfig> {
        self.config.load_full()
    }

    /// Tells when the files changed.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads the files again for as long as the process lives.
    pub fn watch(&self, host: &Host) {
        let (config, files, changed) = (Arc::clone(&self.config), self.files.clone(), self.changed.clone());
        let paths = vec![
            files.ca.clone(),
            files.certificate.clone(),
            files.private_key.clone(),
        ];
        poll(host, paths, move || {
            config.store(Arc::new(client_config(&files)?));
            changed.send_replace(());
            Ok(())
        });
    }
}

fn poll(host: &Host, paths: Vec<PathBuf>, apply: impl Fn() -> Result<(), TlsError> + Send + 'static) {
    let shutdown = host.shutdown();
    let mut seen = fingerprint(&paths);
    let contain = host.clone();
    host.spawn("tls-reload", async move {
        while tokio::time::timeout(RELOAD, shutdown.cancelled()).await.is_err() {
            let now = fingerprint(&paths);
            if now == seen {
                continue;
            }
            seen = now;
            match contain.contained("tls-reload", &apply) {
                Some(Ok(())) => tracing::info!(files = ?paths, "read changed certificates"),
                Some(Err(error)) => tracing::error!(fault = %error, "kept the old certificates"),
                None => tracing::error!(files = ?paths, "kept the old certificates"),
            }
        }
    });
}

/// A digest of what the files hold now; a file that can't be read counts as empty.
pub fn fingerprint(paths: &[PathBuf]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for path in paths {
        let content = std::fs::read(path).unwrap_or_default();
        digest.update(content.len().to_be_bytes());
        digest.update(content);
    }
    digest.finalize().into()
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |why: String| TlsError::File {
        what,
        path: path.to_owned(),
        why,
    };
    let read: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(|e| fault(e.to_string()))?
        .collect::<Result<_, _>>()
        .map_err(|e| fault(e.to_string()))?;
    if read.is_empty() {
        return Err(fault("there is no certificate in it".into()));
    }
    Ok(read)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| TlsError::File {
        what: "private key",
        path: path.to_owned(),
        why: e.to_string(),
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA", path)? {
        roots.add(certificate).map_err(|e| TlsError::File {
            what: "CA",
            path: path.to_owned(),
            why: e.to_string(),
        })?;
    }
    Ok(roots)
}

fn loaded(source: &Source, client_auth: &ClientAuth, protocols: &[&[u8]]) -> Result<Loaded, TlsError> {
    let (chain, key, path) = match source {
        Source::Files {
            certificate,
            private_key: key,
        } => (
            certificates("certificate", certificate)?,
            private_key(key)?,
            certificate.as_path(),
        ),
        Source::Made {
            certificate,
            private_key,
        } => (
            vec![certificate.clone()],
            private_key.clone_key(),
            Path::new("(made at the start)"),
        ),
    };
    let unusable = |why: String| TlsError::Unusable {
        path: path.to_owned(),
        why,
    };
    let verifier = match client_auth {
        ClientAuth::Off => None,
        ClientAuth::Optional(ca) => {
            Some(WebPkiClientVerifier::builder(Arc::new(roots(ca)?)).allow_unauthenticated())
        }
        ClientAuth::Required(ca) => Some(WebPkiClientVerifier::builder(Arc::new(roots(ca)?))),
    };
    let verifier = verifier.map(rustls::server::ClientCertVerifierBuilder::build);
    let verifier = verifier.transpose().map_err(|e| unusable(e.to_string()))?;
    let builder = match &verifier {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(verifier) => ServerConfig::builder().with_client_cert_verifier(Arc::clone(verifier)),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| unusable(e.to_string()))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // A resumed session would bring back a client whose certificate ran out or is no longer trusted.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Loaded {
        config: Arc::new(config),
        verifier,
    })
}

fn client_config(files: &ClientFiles) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots(&files.ca)?)
        .with_client_auth_cert(
            certificates("certificate", &files.certificate)?,
            private_key(&files.private_key)?,
        )
        .map_err(|e| TlsError::Unusable {
            path: files.certificate.clone(),
            why: e.to_string(),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_certificate_is_named() {
        crate::host::install_tls_provider();
        let files = ServerFiles {
            certificate: "/nowhere/tls.crt".into(),
            private_key: "/nowhere/tls.key".into(),
            client_auth: ClientAuth::Off,
        };
        let error = ServerTls::load(files, &[b"h2"]).err().expect("no such file");
        assert!(
            error.to_string().contains("certificate file /nowhere/tls.crt"),
            "{error}"
        );
    }

    #[test]
    fn no_session_is_resumed() {
        crate::host::install_tls_provider();
        let tls = ServerTls::self_signed(ClientAuth::Off, &[b"h2"]).expect("a certificate");
        assert!(!tls.current().session_storage.can_cache());
        assert_eq!(tls.current().send_tls13_tickets, 0);
    }

    #[test]
    fn a_file_without_a_certificate_is_named() {
        crate::host::install_tls_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("tls.crt");
        std::fs::write(&path, "not a certificate").expect("written");
        let error = certificates("certificate", &path).expect_err("no certificate");
        assert!(error.to_string().contains("no certificate in it"), "{error}");
    }

    #[test]
    fn a_fingerprint_changes_with_the_content() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("f");
        let before = fingerprint(std::slice::from_ref(&path));
        std::fs::write(&path, "x").expect("written");
        assert_ne!(before, fingerprint(std::slice::from_ref(&path)));
    }
}
