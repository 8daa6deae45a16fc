//! Addresses of brokers, as flags write them.

use std::path::PathBuf;
use std::str::FromStr;

/// Where a broker listens: `unix:///run/broker/broker.sock` or `https://broker.example:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkAddress {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// TCP with TLS.
    Tcp {
        /// Name or IP address; the server's certificate must be made out to it.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not an address of a broker: {why}; write unix:///PATH or https://HOST:PORT")]
pub struct AddressError {
    text: String,
    why: &'static str,
}

impl std::fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

impl FromStr for LinkAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |why| AddressError {
            text: text.to_owned(),
            why,
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(refuse("the path of a socket starts with /"))
            };
        }
        if text.starts_with("http://") {
            return Err(refuse("TCP is only spoken with TLS"));
        }
        let rest = text
            .strip_prefix("https://")
            .ok_or_else(|| refuse("the scheme is unknown"))?;
        let (host, port) = rest
            .trim_end_matches('/')
            .rsplit_once(':')
            .ok_or_else(|| refuse("the port is missing"))?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = port
            .parse()
            .map_err(|_| refuse("the port is not a number up to 65535"))?;
        if host.is_empty() || host.contains(['/', '@', '?']) {
            return Err(refuse("the host is missing or has illegal characters"));
        }
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::socket("unix:///run/b.sock", LinkAddress::Unix("/run/b.sock".into()))]
    #[case::name("https://broker:8443", LinkAddress::Tcp { host: "broker".into(), port: 8443 })]
    #[case::ipv4("https://127.0.0.1:1", LinkAddress::Tcp { host: "127.0.0.1".into(), port: 1 })]
    #[case::ipv6("https://[::1]:8443", LinkAddress::Tcp { host: "::1".into(), port: 8443 })]
    fn addresses_are_read_and_printed(#[case] text: &str, #[case] address: LinkAddress) {
        assert_eq!(text.parse(), Ok(address.clone()));
        assert_eq!(address.to_string(), text);
    }

    #[rstest]
    #[case::no_tls("http://broker:80", "only spoken with TLS")]
    #[case::no_port("https://broker", "port is missing")]
    #[case::relative("unix://b.sock", "starts with /")]
    #[case::no_scheme("broker:8443", "scheme is unknown")]
    #[case::bad_port("https://broker:99999", "not a number")]
    #[case::no_host("https://:8443", "host is missing")]
    #[case::a_path("https://broker/path:8443", "illegal characters")]
    fn a_wrong_address_is_refused_with_the_reason(#[case] text: &str, #[case] why: &str) {
        let error = text.parse::<LinkAddress>().expect_err("not an address");
        assert!(error.to_string().contains(why), "{error}");
    }
}
