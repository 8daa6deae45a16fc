//! A certificate authority with a server and clients.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// An authority with its files.
pub(crate) struct Pki {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A server's certificate for 127.0.0.1; its path.
    pub(crate) fn server(&self) -> String {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        self.issue("server", params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for the agent of a cluster; its path.
    pub(crate) fn client(&self, cluster: &str) -> String {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "spiffe://a/agent");
        let uri = format!("spiffe://{cluster}/agent");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        self.issue(cluster, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, name: &str, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> String {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        self.path(&format!("{name}.pem"))
    }
}
