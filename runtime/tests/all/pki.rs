//! Certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A CA and the folder that it writes into.
pub(crate) struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// Files of one certificate.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) private_key: PathBuf,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let pki = Self {
            issuer,
            folder: tempfile::tempdir().expect("a folder"),
        };
        pki.write("ca.crt", &pki.issuer.pem());
        pki
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub(crate) fn server(&self, name: &str) -> Files {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", &params)
    }

    pub(crate) fn server_certificate(&self) -> PathBuf {
        self.folder.path().join("server.crt")
    }

    pub(crate) fn server_private_key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    pub(crate) fn client(&self, uri: &str) -> Files {
        self.client_for(uri, vec![ExtendedKeyUsagePurpose::ClientAuth])
    }

    pub(crate) fn client_for(&self, uri: &str, usages: Vec<ExtendedKeyUsagePurpose>) -> Files {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a URI"))];
        params.extended_key_usages = usages;
        self.sign("client", &params)
    }

    fn sign(&self, name: &str, params: &CertificateParams) -> Files {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.clone().signed_by(&key, &self.issuer).expect("signed");
        Files {
            certificate: self.write(&format!("{name}.crt"), &certificate.pem()),
            private_key: self.write(&format!("{name}.key"), &key.serialize_pem()),
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path: &Path = self.folder.path();
        std::fs::write(path.join(name), text).expect("written");
        path.join(name)
    }
}
