//! When the configuration is read again: every ten seconds its file and the files it names are compared with what was read before, by
//! content, because mounted Secrets change by a swap of links. A broken change keeps what is in use, and is told once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use runtime::host::Host;
use sha2::{Digest as _, Sha256};

use super::{Config, ConfigError, Diagnostic, parse};

/// How often files are looked at.
pub const PERIOD: Duration = Duration::from_secs(10);

/// A configuration with the fingerprint of everything it was made from.
pub struct Loaded {
    /// The configuration, or what is wrong with it.
    pub config: Result<Config, ConfigError>,
    fingerprint: [u8; 32],
}

/// Reads a configuration file and the files that it names.
pub fn load(path: &Path) -> Loaded {
    let seen: Mutex<BTreeMap<PathBuf, Result<Vec<u8>, io::ErrorKind>>> = Mutex::default();
    let read = |path: &Path| {
        let result = std::fs::read(path);
        let copy = result.as_ref().map(Clone::clone).map_err(io::Error::kind);
        seen.lock().insert(path.to_owned(), copy);
        result
    };
    let fail = |text: String, hint: &str| ConfigError {
        path: path.to_owned(),
        faults: vec![Diagnostic::new(1, text, hint)],
    };
    let config = match read(path).map(String::from_utf8) {
        Ok(Ok(source)) => parse(path, &source, &read),
        Ok(Err(_)) => Err(fail("the file is not UTF-8".into(), "save it as UTF-8")),
        Err(error) => Err(fail(
            format!("the file can't be read: {error}"),
            "check --cloud-config and its permissions",
        )),
    };
    let mut digest = Sha256::new();
    for (path, content) in seen.lock().iter() {
        digest.update(path.as_os_str().as_encoded_bytes());
        match content {
            Ok(content) => {
                digest.update(content.len().to_be_bytes());
                digest.update(content);
            }
            Err(kind) => digest.update(kind.to_string()),
        }
    }
    Loaded {
        config,
        fingerprint: digest.finalize().into(),
    }
}

/// Reads the files again every `period` for as long as the process lives, and hands every change to `apply`: a configuration, or what is wrong with it.
pub async fn watch(
    host: Host,
    path: PathBuf,
    first: Loaded,
    period: Duration,
    apply: impl Fn(Result<Config, ConfigError>) + Send,
) {
    let shutdown = host.shutdown();
    let mut seen = first.fingerprint;
    drop(first.config);
    while tokio::time::timeout(period, shutdown.cancelled()).await.is_err() {
        let Some(loaded) = host.contained("config-reload", || load(&path)) else {
            continue;
        };
        if loaded.fingerprint != seen {
            seen = loaded.fingerprint;
            apply(loaded.config);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn a_change_of_the_file_or_of_a_key_file_shows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        write(
            folder.path(),
            "cloud.conf",
            "[Global]\napi-url = http://c/client/api\napi-key = A\nsecret-key-file = secret\n",
        );
        write(folder.path(), "secret", "S");
        let first = load(&path);
        assert!(first.config.is_ok());
        assert_eq!(load(&path).fingerprint, first.fingerprint);
        write(folder.path(), "secret", "T");
        let second = load(&path);
        assert_ne!(second.fingerprint, first.fingerprint);
        std::fs::remove_file(folder.path().join("secret")).unwrap();
        let third = load(&path);
        assert!(
            third
                .config
                .unwrap_err()
                .to_string()
                .contains("secret-key-file: secret can't be read")
        );
        assert_ne!(third.fingerprint, second.fingerprint);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load(Path::new("/nowhere/cloud.conf"))
            .config
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("/nowhere/cloud.conf:1: the file can't be read"),
            "{error}"
        );
    }
}
