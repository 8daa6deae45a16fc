//! Who is at the other end of a connection.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Who calls. Every request of a served link carries one in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine on the Unix socket.
    Unix {
        /// Its user id, as the kernel says.
        uid: u32,
    },
    /// A holder of a certificate of the configured CA.
    Certificate(Certificate),
}

/// The names in a client certificate that was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// URIs of the subject alternative name.
    pub uris: Vec<String>,
    /// DNS names of the subject alternative name.
    pub dns: Vec<String>,
    /// The extended key usage names client authentication.
    pub for_clients: bool,
    /// End of validity, in seconds since 1970.
    pub not_after: i64,
}

impl Certificate {
    /// Reads the names of a certificate in DER. Nothing can be read: no names, so nobody.
    pub fn read(der: &CertificateDer<'_>) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return Self::default();
        };
        let mut read = Self {
            not_after: certificate.validity().not_after.timestamp(),
            ..Self::default()
        };
        if let Ok(Some(usage)) = certificate.extended_key_usage() {
            read.for_clients = usage.value.client_auth;
        }
        let Ok(Some(names)) = certificate.subject_alternative_name() else {
            return read;
        };
        for name in &names.value.general_names {
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "only these two kinds of name map to a cluster"
            )]
            match name {
                GeneralName::URI(uri) => read.uris.push((*uri).to_owned()),
                GeneralName::DNSName(dns) => read.dns.push((*dns).to_owned()),
                _ => {}
            }
        }
        read
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix { uid } => write!(f, "unix:uid={uid}"),
            Self::Certificate(certificate) => {
                write!(
                    f,
                    "{}",
                    certificate
                        .uris
                        .first()
                        .or(certificate.dns.first())
                        .map_or("a certificate without names", |n| n)
                )
            }
        }
    }
}
