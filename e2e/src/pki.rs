//! Certificates for a broker on the network and its agents.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate authority whose files lie in one folder.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Authority {
    /// Founds one; its own certificate is `DIR/NAME.crt`.
    pub fn found(dir: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(dir.join("ca.crt"), issuer.pem())?;
        Ok(Self {
            dir: dir.to_path_buf(),
            issuer,
        })
    }

    /// The authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// A server's pair for 127.0.0.1.
    pub fn server(&self, name: &str) -> Result<Pair> {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let localhost = "localhost".try_into().context("a DNS name")?;
        let names = vec![SanType::IpAddress(address), SanType::DnsName(localhost)];
        self.issue(name, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's pair whose one name is a URI.
    pub fn client(&self, name: &str, uri: &str) -> Result<Pair> {
        let names = vec![SanType::URI(uri.try_into().context("a URI")?)];
        self.issue(name, names, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, name: &str, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        let pair = Pair {
            cert: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        };
        std::fs::write(&pair.cert, cert.pem())?;
        std::fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}
